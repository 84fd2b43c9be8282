"""Commands about access: access rules, the permissions of a client, delegation tokens and certificates."""
