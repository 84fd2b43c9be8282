"""A broker whose authorizer refuses the rights that a file lists, and records each question. `test_rights.py` runs it as a process of its
own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ottla.security import authorizer
from ottla.security.acl import AclOperation, ResourceType
from ottla.security.principal import Requester
from tests.fakes.authorizer import RuleAuthorizer

DIRECTORY = "JUDGE_DIRECTORY"


class JudgedAuthorizer(RuleAuthorizer):
    """Refuses the rights in the file `denied`, or all rights, and appends each question to the file `asked`."""

    def __init__(self) -> None:
        directory = Path(os.environ[DIRECTORY])
        self._denied = directory / "denied"
        self._asked = (directory / "asked").open("a")

    def is_allowed(self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        self._asked.write(json.dumps([operation.name, resource_type.name, name]) + "\n")
        self._asked.flush()
        denied = json.loads(self._denied.read_text())
        return denied != "all" and [operation.name, resource_type.name] not in denied


if __name__ == "__main__":
    authorizer.AllowClients = JudgedAuthorizer  # type: ignore[assignment, misc]
    from ottla.cli.main import main

    sys.exit(main())
