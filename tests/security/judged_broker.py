"""A broker whose authorizer does what a file says and writes down what it is asked; `test_rights.py` runs it as a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ottla.security import authorizer
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester

DIRECTORY = "JUDGE_DIRECTORY"
ANY_NAME = "*"


class JudgedAuthorizer:
    """Refuses the rights that the file `denied` names or all; appends what it is asked to `asked`."""

    def __init__(self) -> None:
        directory = Path(os.environ[DIRECTORY])
        self._denied = directory / "denied"
        self._asked = (directory / "asked").open("a")

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self._asked.write(json.dumps([operation.name, resource_type.name, name]) + "\n")
        self._asked.flush()
        denied = json.loads(self._denied.read_text())
        return denied != "all" and [operation.name, resource_type.name] not in denied

    permits = is_allowed

    def is_allowed_on_any(self, requester: Requester, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self.is_allowed(requester, operation, resource_type, ANY_NAME)

    def allows_clients_everything(self, requester: Requester) -> bool:
        return False

    def is_open(self, resource_type: ResourceType, name: str) -> bool:
        return False


if __name__ == "__main__":
    authorizer.AllowClients = JudgedAuthorizer  # type: ignore[assignment, misc]
    from ottla.cli.main import main

    sys.exit(main())
