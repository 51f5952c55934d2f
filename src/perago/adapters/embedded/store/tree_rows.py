"""Trees and their ranges as rows of the database, checked against their ids when read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.adapters.embedded.store.trees import BuiltTree, content_id, decode_tree
from perago.errors import CorruptObjectError

if TYPE_CHECKING:
    import sqlite3

    from perago.adapters.embedded.store.trees import Tree
    from perago.adapters.foundation.database import Database


class TreeRows:
    """Reads in the calling thread's transaction, if there is one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def tree(self, tree: str) -> Tree:
        """Raises :class:`CorruptObjectError` if the tree is missing or damaged."""
        return decode_tree(self.built(tree).body)

    def built(self, tree: str) -> BuiltTree:
        """A tree that is here already. Raises as :meth:`tree` does."""
        body = self._body("SELECT CAST(body AS BLOB) FROM trees WHERE id = ?", "tree", tree)
        return BuiltTree(tree, body, {})

    def load(self, range_id: str) -> bytes:
        """Raises :class:`CorruptObjectError` if the range is missing or damaged."""
        return self._body("SELECT CAST(body AS BLOB) FROM ranges WHERE id = ?", "range", range_id)

    def keep(self, connection: sqlite3.Connection, built: BuiltTree) -> None:
        """Write what isn't there yet of a tree, in the caller's transaction."""
        connection.executemany("INSERT OR IGNORE INTO ranges VALUES (?, ?)", built.ranges.items())
        connection.execute("INSERT OR IGNORE INTO trees VALUES (?, ?)", (built.id, built.body))

    def _body(self, sql: str, kind: str, name: str) -> bytes:
        rows = self._database.query(sql, name)
        if rows and content_id(rows[0][0]) == name:
            return bytes(rows[0][0])
        raise CorruptObjectError(
            f"{kind} {name} of the store is {'damaged' if rows else 'missing'}",
            fix="run `perago verify` to see all the damage, then restore the store from a backup",
        )
