"""Looks into the built wheels and sdists: `python check_archives.py build/dist`."""

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

TELLING = ("Home-page", "Project-URL", "Author", "Author-email", "Maintainer", "Maintainer-email")


def faults_in_wheel(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        headers = Parser().parsestr(archive.read(metadata).decode(), headersonly=True)
    faults = [f"metadata has {key}: {headers[key]}" for key in TELLING if headers[key]]
    packages = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
    faults += [f"{package} has no py.typed" for package in packages if f"{package}/py.typed" not in names]
    faults += [f"holds {name}" for name in names if "tests" in name.split("/") or name.endswith(".pyc")]
    if len(packages) != 1:
        faults.append(f"holds {len(packages)} packages: {sorted(packages)}")
    if not any(name.endswith("licenses/LICENSE") for name in names):
        faults.append("holds no licence")
    if headers["License-Expression"] != "MIT":
        faults.append("doesn't say MIT")
    return faults


def faults_in_sdist(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = ("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO")
    faults = [f"has no {name}" for name in wanted if name not in names]
    faults += [
        f"has no {folder}" for folder in ("src", "tests") if not any(n.startswith(folder) for n in names)
    ]
    faults += [f"holds {name}" for name in names if name.endswith(".pyc")]
    return faults


def main(folder: Path) -> int:
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    found = [f"{path.name}: {fault}" for path in wheels for fault in faults_in_wheel(path)]
    found += [f"{path.name}: {fault}" for path in sdists for fault in faults_in_sdist(path)]
    if not wheels or len(wheels) != len(sdists):
        found.append(f"{len(wheels)} wheels and {len(sdists)} sdists")
    for line in found or [f"{len(wheels)} wheels and {len(sdists)} sdists hold what they should"]:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
