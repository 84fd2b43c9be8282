"""Fetches Java libraries by Maven, as it is configured on this machine, into a directory."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>ottla</groupId>'
    "<artifactId>fetched</artifactId><version>1</version><dependencies>{}</dependencies></project>"
)


def copy_artifacts(folder: Path, artifacts: Sequence[tuple[str, str, str]], *, library: Path, without_groups: Sequence[str] = ()) -> None:
    """Copies the jars of these artifacts (group, name, version), and of their dependencies, into `library`.

    Dependencies of `without_groups` are excluded. The pom is written into `folder`.
    """
    exclusions = "".join(f"<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>" for group in without_groups)
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"<exclusions>{exclusions}</exclusions></dependency>"
        for group, name, version in artifacts
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(POM.format(dependencies))
    fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={library.absolute()}", "-DincludeScope=runtime"]
    done = subprocess.run(fetch, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"mvn failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
