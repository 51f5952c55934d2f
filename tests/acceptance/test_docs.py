"""The documentation agrees with the code, and its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _without_code(text):
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(page):
    """What GitHub makes of a page's headings."""
    headings = re.findall(
        r"^#+ (.+)$", _without_code(page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _links():
    for page in PAGES:
        text = _without_code(page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target:
                yield pytest.param(page, target, id=f"{page.relative_to(ROOT)}: {target}")


@pytest.mark.parametrize(("page", "target"), list(_links()))
def test_every_relative_link_leads_somewhere(page, target):
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    assert found.exists(), f"{page.relative_to(ROOT)} links to {target}, which isn't there"
    if anchor:
        assert anchor in _anchors(found), f"{found.name} has no heading #{anchor}"


def _generated():
    script = ROOT / "docs" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_reference", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


@pytest.mark.parametrize(
    ("page", "content"), [pytest.param(*item, id=item[0].name) for item in _generated().items()]
)
def test_generated_reference_pages_say_what_the_code_says(page, content):
    assert page.read_text(encoding="utf-8") == content, (
        f"{page.name} is out of date: .venv/bin/python docs/reference/generate.py"
    )


def test_every_decision_is_in_the_index():
    decisions = ROOT / "docs" / "decisions"
    index = (decisions / "README.md").read_text(encoding="utf-8")
    numbered = sorted(page.name for page in decisions.glob("[0-9]*.md"))
    assert [name for name in numbered if name not in index] == []


def test_every_command_of_the_makefile_is_explained_to_contributors():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    explained = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [c for c in commands if c != "help" and f"`make {c}`" not in explained] == []


def test_every_box_of_the_architecture_is_a_folder_or_module_that_exists():
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    boxes = re.findall(r'class="folder"[^>]*>([^<]+)<', picture)
    assert "flow" in boxes
    assert "flow/lifecycle.py" in boxes
    product = ROOT / "src" / "perago"
    assert [box for box in boxes if not (product / box).exists()] == []


def test_every_package_is_a_box_of_the_architecture():
    picture = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")
    packages = [init.parent.name for init in (ROOT / "src" / "perago").glob("*/__init__.py")]
    assert [package for package in packages if f">{package}<" not in picture] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
