"""A forbidden-imports contract that also works before all of its packages exist.

import-linter refuses a contract with a package that does not exist. Rules about future packages should be written early, so this contract
ignores modules of Ottla that do not exist. A test creates such a package and checks that the rule then applies.
"""

from __future__ import annotations

from typing import Any

from grimp import ImportGraph
from importlinter import ContractCheck
from importlinter.contracts.forbidden import ForbiddenContract


class ForbiddenWherePresent(ForbiddenContract):  # type: ignore[misc, unused-ignore]
    """import-linter's forbidden contract, which ignores modules of Ottla that do not exist. Patterns are passed on unchanged."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots = tuple(self.session_options["root_packages"])

        def exists(expression: Any) -> bool:
            name = str(expression)
            return name in graph.modules or "*" in name or name.partition(".")[0] not in roots

        for option in ("source_modules", "forbidden_modules"):
            setattr(self, option, [expression for expression in getattr(self, option) if exists(expression)])
        return super().check(graph, verbose)
