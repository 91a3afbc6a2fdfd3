"""`tito init`: make a workspace, or bring one up to date."""

from __future__ import annotations

from pathlib import Path

from tito.workspace import backends, course, module, state
from tito.workspace.folder import MARK, Workspace, WorkspaceError, check, find

README = """# My TinyTorch

Here I build a deep-learning framework, module by module.

    tito module start 01       begin a module: its notebook is 01_setup.ipynb
    tito module open 01        open it
    tito module hint 01        a hint, one at a time
    tito module test 01        run its tests on my code
    tito module complete 01    my code becomes part of my tinytorch
    tito status                what is mine
    tito ladder                how fast a training step is on what I have written

`tinytorch/` is my package: my code where I have completed it, the reference elsewhere. `tito` makes
it; I write in the notebooks, and in `backends/mine.py`, a backend of my own. What tito replaces it
keeps in `.tito/backups/`.
"""
IGNORED = "__pycache__/\n.ipynb_checkpoints/\n"


def init(folder: Path, form: str | None = None) -> Workspace:
    """Make a workspace in a folder; in one that is a workspace already, bring it up to date.

    Args:
        form: of the lessons' files, "ipynb" or "py"; if not given, what it was.

    Raises:
        WorkspaceError: the folder is in another workspace, or has a `tinytorch` of its own.
    """
    folder = folder.resolve()
    workspace = Workspace(folder)
    check(workspace)
    outer = find(folder)
    if outer is not None and outer != workspace:
        raise WorkspaceError(
            f"{folder} is inside the workspace {outer.root}: choose another folder"
        )
    if outer is None and workspace.package.exists():
        raise WorkspaceError(
            f"{workspace.package} exists and is not tito's: choose an empty folder; or, if a "
            f"workspace has lost its folder {MARK}, move it away: the notebooks stay as they are"
        )
    if folder.exists() and not folder.is_dir():
        raise WorkspaceError(f"{folder} is a file: choose a folder")
    (folder / MARK).mkdir(parents=True, exist_ok=True)
    with state.edit(workspace) as remembered:
        remembered.format = form or remembered.format
    module.refresh(workspace)
    for name, text in (("README.md", README), (".gitignore", IGNORED)):
        if not (folder / name).exists():
            state.write(folder / name, text)
    if not backends.path_of(workspace).exists():
        backends.begin(workspace, backends.MINE, backends.text_of(backends.MINE))
    for lesson in course.lessons():
        module.write_file(workspace, lesson, form or module.form_of(workspace, lesson))
    return workspace
