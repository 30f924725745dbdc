"""What a power cut can leave of a folder, from a record of all that was done to its files.

`WatchedOs` takes the place of `os` in `alray.core.storage.disk`. It does what it is asked, keeps a list of it, and lets
the calls fail that a test names. `Disk` goes through that list and says at any place of it what may be on the disk:

    journal     as ext4 by default: names come to the disk in order, and with them whatever is synced after them; the
                content of a file that was not synced is there up to any byte
    strict      as POSIX allows: of the names in a folder that were changed since it was synced, any are there; the
                content of a file that was not synced has zeros for any blocks, and any length
"""

# It stands in for `os`:
# ruff: noqa: PTH100, PTH102, PTH105, PTH106, PTH108

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from typing import Any, Literal, TypeAlias

Tree: TypeAlias = dict[str, bytes | None]
"""The content of each file, and None for a folder, by path below the root."""
Order = Literal["journal", "strict"]
Kind = Literal["create", "mkdir", "rename", "unlink", "rmdir", "write", "truncate", "fsync", "fsync folder"]


@dataclass(frozen=True)
class Operation:
    """One change. path, to: below the root. inode: of the file. content, offset: of a write; the size that a truncate
    leaves."""

    kind: Kind
    path: str = ""
    to: str = ""
    inode: int = -1
    content: bytes = b""
    offset: int = 0

    @property
    def folder(self) -> str:
        """The folder that has the name."""
        return parent_of(self.to or self.path)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def tree_of(root: Path) -> Tree:
    """What is in a folder."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


class WatchedOs:
    """`os`, with a list of what was done below a root.

    fails: is asked before each call, with its number from 1 and its name, and gives the error to raise; a write that
    fails has written half of its content before.
    """

    def __init__(self, root: Path, fails: Callable[[int, str], OSError | None] = lambda number, name: None) -> None:
        self.root, self.fails = root.resolve(), fails
        self.before = tree_of(self.root)
        self.operations: list[Operation] = []
        self.calls = 0
        self._lock = RLock()  # stages write in threads
        self._next = 0
        self._folders = {"", *(path for path, content in self.before.items() if content is None)}
        self.inodes: dict[str, int] = {}
        self.contents: dict[int, bytes] = {}
        for path, content in self.before.items():
            if content is not None:
                self.contents[self._new_inode(path)] = content
        self._open: dict[int, tuple[str, int | None]] = {}  # by descriptor: path, and the inode of a file

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        with self._lock:
            self._count("open", path)
            is_new = not path.exists()
            descriptor = os.open(path, flags, mode)
            name = self._name(path)
            if name is None:
                return descriptor
            if path.is_dir():
                self._adopt_folder(name)
                self._open[descriptor] = name, None
                return descriptor
            if is_new:
                self._adopt_folder(parent_of(name))
                self._add("create", name, inode=self._new_inode(name))
            elif name not in self.inodes:
                self._adopt(name)
            inode = self.inodes[name]
            if flags & os.O_TRUNC and not is_new:
                self._add("truncate", name, inode=inode)
            self._open[descriptor] = name, inode
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._lock:
            self._open.pop(descriptor, None)
            os.close(descriptor)

    def write(self, descriptor: int, content: memoryview) -> int:
        with self._lock:
            name, inode = self._open.get(descriptor, ("", None))
            try:
                self._count("write", name)
            except OSError:
                content = content[: len(content) // 2]
                self._written(name, inode, bytes(content[: os.write(descriptor, content)]), descriptor)
                raise
            written = os.write(descriptor, content)
            self._written(name, inode, bytes(content[:written]), descriptor)
            return written

    def _written(self, name: str, inode: int | None, content: bytes, descriptor: int) -> None:
        if inode is not None and content:
            self._add("write", name, inode=inode, content=content, offset=os.fstat(descriptor).st_size - len(content))

    def ftruncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            name, inode = self._open.get(descriptor, ("", None))
            self._count("ftruncate", name)
            os.ftruncate(descriptor, size)
            if inode is not None:
                self._add("truncate", name, inode=inode, offset=size)

    def fsync(self, descriptor: int) -> None:
        with self._lock:
            name, inode = self._open.get(descriptor, (None, None))
            self._count("fsync", name)
            if name is not None:
                self._add("fsync folder" if inode is None else "fsync", name, inode=-1 if inode is None else inode)

    def replace(self, old: Path, new: Path) -> None:
        with self._lock:
            self._count("replace", new)
            source, name = self._name(old), self._name(new)
            if source is not None and source not in self.inodes:
                self._adopt(source)
            os.replace(old, new)
            if source is not None and name is not None:
                inode = self.inodes[name] = self.inodes.pop(source)
                self._add("rename", source, to=name, inode=inode)

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._count("unlink", path)
            os.unlink(path)
            name = self._name(path)
            if name is not None and self.inodes.pop(name, None) is not None:
                self._add("unlink", name)

    def mkdir(self, path: Path) -> None:
        with self._lock:
            self._count("mkdir", path)
            os.mkdir(path)
            name = self._name(path)
            if name is not None:
                self._folders.add(name)
                self._add("mkdir", name)

    def rmdir(self, path: Path) -> None:
        with self._lock:
            self._count("rmdir", path)
            os.rmdir(path)
            name = self._name(path)
            left = [each for each in (*self.inodes, *self._folders) if each.startswith(f"{name}/")]
            assert not left, f"deleted by something else: {left}"
            if name in self._folders:
                self._folders.remove(name)
                self._add("rmdir", name)

    def _count(self, call: str, path: Path | str | None) -> None:
        self.calls += 1
        error = self.fails(self.calls, call)
        if error is not None:
            if isinstance(path, Path):
                error.filename = str(path)
            raise error

    def _name(self, path: Path) -> str | None:
        """The path below the root; None of what lies outside."""
        absolute = Path(os.path.abspath(path))
        if not absolute.is_relative_to(self.root):
            return None
        return "" if absolute == self.root else absolute.relative_to(self.root).as_posix()

    def _new_inode(self, name: str) -> int:
        self._next += 1
        self.inodes[name] = self._next
        return self._next

    def _adopt(self, name: str) -> None:
        """Take in a file that others wrote, when it is first opened here."""
        self._adopt_folder(parent_of(name))
        self._add("create", name, inode=self._new_inode(name))
        self._add("write", name, inode=self.inodes[name], content=(self.root / name).read_bytes())

    def _adopt_folder(self, name: str) -> None:
        if name not in self._folders:
            self._adopt_folder(parent_of(name))
            self._folders.add(name)
            self._add("mkdir", name)

    def _add(self, kind: Kind, path: str, **more: Any) -> None:
        self.operations.append(Operation(kind, path, **more))


@dataclass
class Disk:
    """What is on the disk for certain, and what may be, after some of the operations that were recorded."""

    order: Order
    names: dict[str, int | None] = field(default_factory=dict)  # None for a folder
    contents: dict[int, bytes] = field(default_factory=dict)
    pending: list[Operation] = field(default_factory=list)  # of names
    changes: dict[int, list[Operation]] = field(default_factory=dict)  # of contents

    @classmethod
    def of(cls, before: Tree, inodes: dict[str, int], order: Order) -> Disk:
        """The disk before the first operation: what was there then was on the disk."""
        disk = cls(order)
        for path, content in before.items():
            disk.names[path] = None if content is None else inodes[path]
            if content is not None:
                disk.contents[inodes[path]] = content
        return disk

    def take(self, done: Operation) -> None:
        """Go on by one operation."""
        if done.kind in ("write", "truncate"):
            self.changes.setdefault(done.inode, []).append(done)
        elif done.kind == "fsync":
            self.contents[done.inode] = self._all_of(done.inode)
            self.changes.pop(done.inode, None)
            if self.order == "journal":
                self._settle(self.pending)
        elif done.kind == "fsync folder":
            self._settle(
                [op for op in self.pending if self.order == "journal" or done.path in (op.folder, parent_of(op.path))]
            )
        else:
            self.pending.append(done)

    def _settle(self, settled: list[Operation]) -> None:
        self.pending = [op for op in self.pending if op not in settled]
        for op in settled:
            _apply(self.names, op)
            if op.kind == "rmdir":
                self.pending = [each for each in self.pending if not each.path.startswith(f"{op.path}/")]

    def everything(self) -> Tree:
        """With all that was done."""
        return self._tree(self.pending, self._all_of)

    def nothing_more(self) -> Tree:
        """With nothing that was not synced."""
        return self._tree([], lambda inode: self.contents.get(inode, b""))

    def any_of_it(self, random: Random) -> Tree:
        """With some of what was not synced, by chance."""
        if self.order == "journal":
            kept = self.pending[: random.randint(0, len(self.pending))]
        else:
            share = random.choice((0.2, 0.5, 0.8, 1.0))
            kept = [op for op in self.pending if random.random() < share]
        return self._tree(kept, lambda inode: self._some_of(inode, random))

    def _tree(self, kept: list[Operation], content: Callable[[int], bytes]) -> Tree:
        names = dict(self.names)
        for op in kept:
            _apply(names, op)
        return {
            path: None if inode is None else content(inode)
            for path, inode in names.items()
            if all(names.get(above, 0) is None for above in _folders_above(path))
        }

    def _all_of(self, inode: int) -> bytes:
        return _changed(self.contents.get(inode, b""), self.changes.get(inode, []))

    def _some_of(self, inode: int, random: Random) -> bytes:
        certain, changes = self.contents.get(inode, b""), self.changes.get(inode, [])
        if not changes:
            return certain
        done = random.randint(0, len(changes))
        reached = _changed(certain, changes[:done])
        whole = _changed(certain, changes[: done + 1])
        if self.order == "journal" or random.random() < 0.3:
            return whole[: random.randint(min(len(reached), len(whole)), len(whole))]
        block = random.choice((64, 512, 4096))
        share = random.choice((0.0, 0.5, 0.9))
        length = random.randint(min(len(certain), len(whole)), len(whole))
        begin = len(certain) - len(certain) % block
        blocks = (whole[at : at + block] for at in range(begin, length, block))
        lost = b"".join(each if random.random() < share else bytes(len(each)) for each in blocks)
        return (certain[:length] + (whole[:begin] + lost)[len(certain) :])[:length]


def states(watched: WatchedOs, *, each: int, seed: int) -> Iterator[tuple[int, Tree]]:
    """What a crash may leave after each number of operations: all and nothing of what was not synced, and `each` times
    some of it, in both orders; ten times as often where a file has just got its name. Some of these trees are the same.
    """
    random = Random(seed)
    orders: tuple[Order, ...] = ("journal", "strict")
    first = {path: inode for inode, path in enumerate(_files(watched.before), 1)}
    for order in orders:
        disk = Disk.of(watched.before, first, order)
        for number in range(len(watched.operations) + 1):
            if number:
                disk.take(watched.operations[number - 1])
            yield number, disk.everything()
            yield number, disk.nothing_more()
            for _ in range(each * (10 if has_just_a_name(watched, number) else 1)):
                yield number, disk.any_of_it(random)


def has_just_a_name(watched: WatchedOs, number: int) -> bool:
    """Whether the last of so many operations gave a manifest its name: what it tells of must be there before."""
    last = watched.operations[number - 1] if number else None
    return last is not None and last.kind == "rename" and last.to.endswith("/manifest.json")


def _files(tree: Tree) -> list[str]:
    return [path for path, content in tree.items() if content is not None]


def _apply(names: dict[str, int | None], op: Operation) -> None:
    match op.kind:
        case "create":
            names[op.path] = op.inode
        case "mkdir":
            names[op.path] = None
        case "rename":
            names.pop(op.path, None)
            names[op.to] = op.inode
        case "unlink":
            names.pop(op.path, None)
        case "rmdir":
            for path in [path for path in names if path == op.path or path.startswith(f"{op.path}/")]:
                del names[path]


def _changed(content: bytes, changes: list[Operation]) -> bytes:
    for change in changes:
        if change.kind == "truncate":
            content = content[: change.offset]
        else:
            content = content[: change.offset].ljust(change.offset, b"\0") + change.content
    return content


def _folders_above(path: str) -> Iterator[str]:
    while path := parent_of(path):
        yield path
