import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs made-up distributions where this process finds them: metadata, entry points and modules on disk."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    installed: list[str] = []

    def install_one(
        name: str,
        *,
        entry_points: Mapping[str, str],
        modules: Mapping[str, str],
        version: str = "1.0",
        requires: Sequence[str] = (),
    ) -> None:
        metadata = site / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (metadata / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
        points = "".join(f"{point} = {target}\n" for point, target in entry_points.items())
        (metadata / "entry_points.txt").write_text(f"[stagewright]\n{points}", encoding="utf-8")
        for module, source in modules.items():
            (site / f"{module}.py").write_text(source, encoding="utf-8")
            installed.append(module)

    yield install_one
    for module in installed:
        sys.modules.pop(module, None)
