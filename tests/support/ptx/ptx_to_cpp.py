#!/usr/bin/env python3
"""Translates the PTX of nvcc to C++ that runs over the fibers of tests/support/cuda_cpu.

    ptx_to_cpp.py FILE.ptx > FILE.cc

Every kernel becomes a function of its addresses of arguments, and registers itself (ptx_machine.h). Registers become
variables, labels and branches labels and gotos; memory, arithmetic and conversions are what ptx_machine.h says. It
knows the part of PTX that nvcc makes of this project's kernels, and stops at the first instruction that is not in it.
PTX ISA 9.0: https://docs.nvidia.com/cuda/parallel-thread-execution
"""
import re
import sys

TYPES = {
    "u8": "uint8_t", "s8": "int8_t", "b8": "uint8_t", "u16": "uint16_t", "s16": "int16_t", "b16": "uint16_t",
    "u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t", "u64": "uint64_t", "s64": "int64_t", "b64": "uint64_t",
    "f32": "float", "f64": "double", "pred": "bool",
}  # fmt: skip
SIZES = {name: 1 if name == "pred" else int(name[1:]) // 8 for name in TYPES}
SPECIAL = {"%tid": "threadIdx", "%ntid": "blockDim", "%ctaid": "blockIdx", "%nctaid": "gridDim"}
# Ordered comparisons are false where an operand is no number, unordered ones true.
ORDERED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
LOGIC = {"and": "&", "or": "|", "xor": "^"}


class Unknown(Exception):
    pass


def split_operands(text):
    """At commas outside of brackets and braces."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            parts.append(text[begin:at].strip())
            begin = at + 1
    return [part for part in parts + [text[begin:].strip()] if part]


def variable(register):
    return register[1:].replace(".", "_")


def is_float(kind):
    return kind[0] == "f"


def unsigned(kind):
    """Sums and products wrap around, which C++ says of unsigned numbers only."""
    return "u" + kind[1:] if kind[0] in "su" else kind


class Kernel:
    """One .entry: its text, and the C++ made of it so far."""

    def __init__(self, name, parameters, directives, body, dynamic):
        self.name = name
        self.parameters = {parameter: at for at, parameter in enumerate(parameters)}
        threads = re.search(r"\.maxntid\s+(\d+)", directives)
        self.threads_max = int(threads.group(1)) if threads else 0
        self.dynamic = {array for array in dynamic if array in body}
        self.shared, self.shared_bytes, self.local = {}, 0, {}
        self.declarations, self.lines = [], []
        for statement in self.statements(body):
            self.translate(statement)

    @staticmethod
    def statements(body):
        # A scope of its own for a half of a register, which all of them call %temp.
        count = [0]

        def rename(match):
            count[0] += 1
            return match.group(1).replace("%temp", f"%temp{count[0]}") + "\n"

        body = re.sub(r"\{\s*(\.reg \.b32 %temp;.*?)\}\s*\n", rename, body, flags=re.S)
        body = re.sub(r"([$\w]+):\s*\n", r"\1:;\n", body)
        for text in body.split(";"):
            text = " ".join(text.split())
            if text:
                yield text

    def give_up(self, text, why):
        sys.exit(f'ptx_to_cpp: {self.name}: "{text}" is not in the part of PTX that is known here ({why})')

    # ---- operands

    def read(self, kind, operand):
        """The operand's bits, taken as kind."""
        name, _, member = operand.rpartition(".")
        if name in SPECIAL:
            return f"bits<{TYPES[kind]}>((uint32_t){SPECIAL[name]}.{member})"
        if operand.startswith("%"):
            return f"bits<{TYPES[kind]}>({variable(operand)})"
        if operand[:2] in ("0f", "0F"):
            return f"bits<{TYPES[kind]}>(bits<float>(0x{operand[2:]}u))"
        if operand[:2] in ("0d", "0D"):
            return f"bits<{TYPES[kind]}>(bits<double>((uint64_t)0x{operand[2:]}u))"
        if re.match(r"-?\d", operand):
            return f"(({TYPES[kind]}){operand}{'' if operand[0] == '-' else 'ull'})"
        if operand in self.parameters:
            return f"(({TYPES[kind]})(uintptr_t)arguments[{self.parameters[operand]}])"
        if operand in self.shared:
            return f"(({TYPES[kind]}){self.shared[operand]})"
        if operand in self.dynamic:
            return f"(({TYPES[kind]})0)"
        if operand in self.local:
            return f"(({TYPES[kind]})(uintptr_t){operand})"
        raise Unknown(operand)

    def address(self, space, operand):
        match = re.match(r"\[([%$\w.]+)(?:\+(-?\d+))?\]$", operand.replace(" ", ""))
        if not match:
            raise Unknown(operand)
        base, offset = match.group(1), int(match.group(2) or 0)
        if space == "param" and base in self.parameters:
            return f"(char *)arguments[{self.parameters[base]}] + {offset}"
        if space == "shared":
            return f"shared + (int64_t){self.read('u64', base)} + {offset}"
        if base in self.local:
            return f"{base} + {offset}"
        return f"(char *)(uintptr_t){variable(base)} + {offset}"

    def write(self, kind, register, expression):
        self.lines.append(f"put<{TYPES[kind]}>({variable(register)}, ({TYPES[kind]})({expression}));")

    # ---- declarations

    def declare(self, text):
        reg = re.match(r"\.reg \.(\w+) (.*)$", text)
        shared = re.match(r"\.shared \.align (\d+) \.[busf](\d+) ([$\w]+)(?:\[(\d+)\])?$", text)
        local = re.match(r"\.local \.align (\d+) \.b8 ([$\w]+)\[(\d+)\]$", text)
        if reg:
            for name in split_operands(reg.group(2)):
                many = re.match(r"%(\w+)<(\d+)>$", name)
                names = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [variable(name)]
                self.declarations += [f"{TYPES[reg.group(1)]} {one} = 0;" for one in names]
        elif shared:
            align, count = int(shared[1]), int(shared[2]) // 8 * int(shared[4] or 1)
            self.shared_bytes = (self.shared_bytes + align - 1) // align * align
            self.shared[shared[3]] = self.shared_bytes
            self.shared_bytes += count
        elif local:
            self.local[local[2]] = int(local[3])
        elif not text.startswith(".pragma"):
            self.give_up(text, "a directive")

    # ---- instructions

    def translate(self, text):
        text = text.lstrip("{} ")
        if re.match(r"[$\w]+:$", text):
            self.lines.append(text.replace("$", "") + ";")
            return
        if not text:
            return
        if text.startswith("."):
            self.declare(text)
            return
        guard = re.match(r"@(!?)%(\w+) (.*)$", text)
        name, _, operands = (guard[3] if guard else text).partition(" ")
        parts = name.split(".")
        begin = len(self.lines)
        try:
            getattr(self, "op_" + parts[0])(parts, split_operands(operands))
        except (AttributeError, KeyError, Unknown) as error:
            self.give_up(text, error)
        if guard:
            self.lines[begin:] = [f"if ({guard[1]}{guard[2]}) {{ {' '.join(self.lines[begin:])} }}"]

    def op_bra(self, _, operands):
        self.lines.append(f"goto {operands[0].replace('$', '')};")

    def op_ret(self, _, __):
        self.lines.append("return;")

    def op_bar(self, parts, operands):
        if parts[1] == "warp":
            self.lines.append(f"warp_barrier({self.read('u32', operands[0])});")
        elif operands == ["0"]:
            self.lines.append("__syncthreads();")
        else:
            raise Unknown("bar")

    def memory(self, parts, pointer):
        """Opens a block in which `at` is the address; returns the kind and how many of it."""
        kind, count = parts[-1], int(parts[-2][1:]) if re.match(r"v\d$", parts[-2]) else 1
        space = parts[1] if parts[1] in ("global", "shared", "param", "local") else "generic"
        self.lines.append(f'{{ char *at = aligned({self.address(space, pointer)}, {SIZES[kind] * count}, "{self.name}");')
        return kind, count

    def op_ld(self, parts, operands):
        kind, count = self.memory(parts, operands[1])
        targets = split_operands(operands[0][1:-1]) if count > 1 else [operands[0]]
        for i, target in enumerate(targets):
            self.write(kind, target, f"load<{TYPES[kind]}>(at + {i * SIZES[kind]})")
        self.lines.append("}")

    def op_st(self, parts, operands):
        kind, count = self.memory(parts, operands[0])
        values = split_operands(operands[1][1:-1]) if count > 1 else [operands[1]]
        for i, value in enumerate(values):
            self.lines.append(f"store<{TYPES[kind]}>(at + {i * SIZES[kind]}, {self.read(kind, value)});")
        self.lines.append("}")

    def op_cvta(self, parts, operands):
        if parts[1] not in ("to", "local"):
            raise Unknown(parts[1])
        self.write("u64", operands[0], self.read("u64", operands[1]))

    def op_mov(self, parts, operands):
        if operands[0].startswith("{"):
            low, high = split_operands(operands[0][1:-1])
            self.lines.append(f"{{ uint64_t both = {self.read('b64', operands[1])};")
            self.write("b32", low, "both")
            self.write("b32", high, "both >> 32")
            self.lines.append("}")
        elif operands[1].startswith("{"):
            low, high = (self.read("b32", half) for half in split_operands(operands[1][1:-1]))
            self.write("b64", operands[0], f"(uint64_t){low} | (uint64_t){high} << 32")
        else:
            self.write(parts[-1], operands[0], self.read(parts[-1], operands[1]))

    def op_setp(self, parts, operands):
        kind = parts[-1]
        if len(parts) != 3:
            raise Unknown("a comparison with more to it")
        left, right = self.read(kind, operands[1]), self.read(kind, operands[2])
        if parts[1] in UNORDERED:
            text = f"!is_ordered({left}, {right}) || {left} {UNORDERED[parts[1]]} {right}"
        elif parts[1] in ("nan", "num"):
            text = f"{'!' if parts[1] == 'nan' else ''}is_ordered({left}, {right})"
        else:
            text = f"is_ordered({left}, {right}) && {left} {ORDERED[parts[1]]} {right}"
        self.write("pred", operands[0], text)

    def op_selp(self, parts, operands):
        kind = parts[-1]
        self.write(kind, operands[0], f"{variable(operands[3])} ? {self.read(kind, operands[1])} : {self.read(kind, operands[2])}")

    def infix(self, sign, kind, operands):
        self.write(kind, operands[0], f"{self.read(kind, operands[1])} {sign} {self.read(kind, operands[2])}")

    def op_add(self, parts, operands):
        self.infix("+", unsigned(parts[-1]), operands)

    def op_sub(self, parts, operands):
        self.infix("-", unsigned(parts[-1]), operands)

    def op_div(self, parts, operands):
        self.rounded(parts)
        self.infix("/", parts[-1], operands)

    def op_rem(self, parts, operands):
        self.infix("%", parts[-1], operands)

    def rounded(self, parts):
        """Of floats, only what rounds to nearest even; and no flushing of small ones to zero."""
        if is_float(parts[-1]) and parts[1:-1] != ["rn"]:
            raise Unknown(".".join(parts))

    def op_mul(self, parts, operands):
        kind = parts[-1]
        if is_float(kind):
            self.rounded(parts)
            self.infix("*", kind, operands)
        elif parts[1] == "lo":
            self.infix("*", unsigned(kind), operands)
        else:
            wide = kind[0] + str(2 * int(kind[1:]))
            both = f"({'__int128' if wide[1:] == '128' else TYPES[wide]})"
            product = f"{both}{self.read(kind, operands[1])} * {both}{self.read(kind, operands[2])}"
            if parts[1] == "wide":
                self.write(wide, operands[0], product)
            elif kind in ("s64", "s32", "u32"):
                self.write(kind, operands[0], f"({product}) >> {kind[1:]}")
            else:
                raise Unknown(kind)

    def op_mad(self, parts, operands):
        kind = unsigned(parts[-1])
        if parts[1] != "lo":
            raise Unknown(parts[1])
        one, two, three = (self.read(kind, operand) for operand in operands[1:])
        self.write(kind, operands[0], f"{one} * {two} + {three}")

    def call(self, function, parts, operands):
        kind = parts[-1]
        given = ", ".join(self.read(kind, operand) for operand in operands[1:])
        self.write(kind, operands[0], f"{function}({given})")

    def op_fma(self, parts, operands):
        self.rounded(parts)
        self.call("std::fma", parts, operands)

    def op_sqrt(self, parts, operands):
        self.rounded(parts)
        self.call("std::sqrt", parts, operands)

    def op_rcp(self, parts, operands):
        if parts[1:] == ["approx", "ftz", "f64"]:
            self.call("reciprocal_seed", parts, operands)
        else:
            self.rounded(parts)
            self.call("reciprocal", parts, operands)

    def op_min(self, parts, operands):
        self.call("least", parts, operands)

    def op_max(self, parts, operands):
        self.call("most", parts, operands)

    def op_abs(self, parts, operands):
        self.call("std::fabs", parts, operands)

    def op_copysign(self, parts, operands):
        self.call("std::copysign", parts, [operands[0], operands[2], operands[1]])

    def op_neg(self, parts, operands):
        self.write(parts[-1], operands[0], "-" + self.read(parts[-1], operands[1]))

    def op_not(self, parts, operands):
        sign = "!" if parts[-1] == "pred" else "~"
        self.write(parts[-1], operands[0], sign + self.read(parts[-1], operands[1]))

    def logic(self, parts, operands):
        self.infix(LOGIC[parts[0]], parts[-1], operands)

    op_and = op_or = op_xor = logic

    def shift(self, parts, operands):
        kind = parts[-1]
        self.write(kind, operands[0], f"shift_{parts[0]}<{TYPES[kind]}>({self.read(kind, operands[1])}, {self.read('u32', operands[2])})")

    op_shl = op_shr = shift

    def op_cvt(self, parts, operands):
        to, of = [part for part in parts[1:] if part in TYPES]
        rest = [part for part in parts[1:] if part not in TYPES]
        value = self.read(of, operands[1])
        if rest == ["rzi"]:
            self.write(to, operands[0], f"towards_zero<{TYPES[to]}>({value})")
        elif rest in ([], ["rn"]) and not (is_float(of) and not is_float(to)):
            self.write(to, operands[0], f"({TYPES[to]}){value}")
        else:
            raise Unknown(".".join(parts))

    def op_shfl(self, parts, operands):
        target, _, from_there = operands[0].partition("|")
        value, given, clamp, mask = (self.read("u32", operand) for operand in operands[1:])
        self.lines.append(f"{{ bool there; uint32_t got = shuffle_{parts[2]}({value}, {given}, {clamp}, {mask}, &there);")
        if from_there:
            self.write("pred", from_there, "there")
        self.lines.append("(void)there;")
        self.write("b32", target, "got")
        self.lines.append("}")

    def atomic(self, parts, operands):
        kind, returns = parts[-1], parts[0] == "atom"
        at = self.address(parts[1], operands[1 if returns else 0])
        value = self.read(kind, operands[2 if returns else 1])
        text = f"atomic_{parts[2]}<{TYPES[kind]}>({at}, {value})"
        if returns:
            self.write(kind, operands[0], text)
        else:
            self.lines.append(f"(void){text};")

    op_atom = op_red = atomic

    # ---- the whole

    def text(self):
        lines = self.declarations[:]
        for name, size in self.local.items():
            lines.append(f"alignas(16) char {name}[{size}]; memset({name}, 0xff, {size});")
        if self.dynamic and self.shared:
            sys.exit(f"ptx_to_cpp: {self.name}: both sizes of shared memory, known and given at the launch")
        memory = "NULL"
        if self.dynamic:
            memory = "(char *)cuda_cpu_shared_dynamic()"
        elif self.shared_bytes:
            memory = f'(char *)cuda_cpu_shared({self.shared_bytes}, "{self.name}", 1)'
        lines += [f"char *shared = {memory};", "(void)shared;"] + self.lines
        function = f"static void ptx{self.name}(void **arguments)\n{{\n    " + "\n    ".join(lines) + "\n}\n"
        return f'{function}static ptx_kernel entry{self.name}("{self.name}", ptx{self.name}, {self.threads_max});\n'


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        source = file.read()
    source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
    source = re.sub(r"//[^\n]*", "", source)
    source = re.sub(r"^\s*\.(loc|file|section)\b[^\n]*", "", source, flags=re.M)
    dynamic = re.findall(r"\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+(\w+)\[\]", source)
    print('#include "tests/support/ptx/ptx_machine.h"\n')
    for name, parameters, directives, body in re.findall(
        r"\.entry\s+([$\w]+)\s*\((.*?)\)([^{]*)\{(.*?)\n\}", source, flags=re.S
    ):
        names = [re.search(r"([$\w]+)(\[\d+\])?$", one).group(1) for one in split_operands(parameters)]
        print(Kernel(name, names, directives, body, dynamic).text())


main()
