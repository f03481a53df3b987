import pytest

from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.prose import broken_links, outside_addresses
from stagewright_test_support.architecture.repository import Repository

SCHEME = "https:" + "//"


def test_this_repository_names_no_outside_address(repository: Repository) -> None:
    expect_none(outside_addresses(repository))


def test_links_in_this_repository_lead_somewhere(repository: Repository) -> None:
    expect_none(broken_links(repository))


@pytest.mark.parametrize(
    "text",
    [
        SCHEME + "stagewright.dev/a",
        "git+" + SCHEME + "h.io/a",
        "see py" + "pi.org",
        "http:" + "//www.w3" + ".org/2000/svg/of-others",
    ],
)
def test_an_outside_address_is_found(made_up: MakeTree, text: str) -> None:
    assert len(outside_addresses(made_up({"docs/a.md": f"# A\n\n{text}\n"}))) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80/a", "localhost/", "json-schema.org/draft", "api.example.com/x"]
)
def test_a_harmless_address_passes(made_up: MakeTree, host: str) -> None:
    assert outside_addresses(made_up({"packages/a/src/a.py": f'URL = "{SCHEME}{host}"\n'})) == []


def test_the_name_of_svg_is_no_address(made_up: MakeTree) -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"/>'
    assert outside_addresses(made_up({"docs/a.svg": svg})) == []


def test_a_broken_link_is_found(made_up: MakeTree) -> None:
    text = (
        "[a](b.md) [b](../a.py#L3) [c](b.md#two-words) [d](b.md#three) [e](gone.md)\n```\n[f](nowhere)\n```\n"
    )
    tree = made_up({"docs/a.md": text, "docs/b.md": "# B\n## Two `words`!\n", "a.py": ""})
    assert broken_links(tree) == [
        "docs/a.md: a link to b.md#three leads nowhere",
        "docs/a.md: a link to gone.md leads nowhere",
    ]
