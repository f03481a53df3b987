"""The simulation bites: what is broken in the engine on purpose breaks a promise."""

import importlib.util
from pathlib import Path

import pytest

from stagewright_simulation.mutation import all_mutants, mutant_table
from stagewright_simulation.patches import Patch, PatchDoesNotFitError, apply_patches, patched_source


@pytest.mark.parametrize("name", sorted(all_mutants()))
def test_a_mutant_still_fits_the_engine(name: str) -> None:
    by_module: dict[str, list[Patch]] = {}
    for patch in all_mutants()[name]:
        by_module.setdefault(patch.module, []).append(patch)
    for module, patches in by_module.items():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        changed = patched_source(source, patches)
        assert changed != source
        compile(changed, spec.origin, "exec")


def test_a_mutant_is_caught_and_the_engine_as_it_is_is_not() -> None:
    name = "failures aren't counted"
    (row,) = mutant_table([name], most=20)
    assert (row.mutant, row.promises) == (name, ("budgets",))
    assert row.seed is not None
    assert str(row).startswith(name)


def test_a_mutant_that_nobody_notices_is_said_to_be_so() -> None:
    (row,) = mutant_table(["a purge forgets steps"], most=0)
    assert row.seed is None
    assert str(row).endswith("not caught")


def test_a_patch_has_to_fit_once() -> None:
    patch = Patch("a.module", "old", "new")
    assert patched_source("an old text", [patch]) == "an new text"
    for source in ("a text", "old and old"):
        with pytest.raises(PatchDoesNotFitError, match=r"a\.module"):
            patched_source(source, [patch])


def test_what_is_imported_already_can_not_be_patched() -> None:
    with pytest.raises(PatchDoesNotFitError, match="imported already"):
        apply_patches([Patch("stagewright.kernel.kernel", "old", "new")])
