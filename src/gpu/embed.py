#!/usr/bin/env python3
"""Makes an object file that holds files as data: embed.py OUTPUT FILE... -- COMPILER...

NAME.fatbin becomes the symbol whorl_fatbin_NAME."""
import pathlib
import subprocess
import sys


def section(path: pathlib.Path) -> str:
    name = "whorl_fatbin_" + path.stem
    return (f'.globl {name}\n.hidden {name}\n.balign 64\n{name}:\n.incbin "{path.resolve()}"\n')


def main() -> None:
    split = sys.argv.index("--")
    output, *inputs = sys.argv[1:split]
    source = (".section .rodata\n" + "".join(section(pathlib.Path(name)) for name in inputs)
              + '.section .note.GNU-stack,"",%progbits\n')
    subprocess.run([*sys.argv[split + 1:], "-c", "-x", "assembler", "-o", output, "-"], input=source,
                   text=True, check=True)


if __name__ == "__main__":
    main()
