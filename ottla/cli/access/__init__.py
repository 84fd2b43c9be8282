"""Commands about access: access rules, and what an address may do."""
