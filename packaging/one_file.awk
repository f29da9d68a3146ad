# Writes bitnet_all.h: bitnet.h with its kernel headers where it includes them.
#
#     awk -f packaging/one_file.awk bitnet.h >bitnet_all.h       from the repository's root
#
# The compiler's directives are kept, so all compilers see what they see in the separate headers. What
# is written depends on this alone:
#   - bitnet.h says for each family of CPUs in an #if which header belongs to it, and includes that
#     header in one place. All of them go there, below the same conditions.
#   - bitnet_kernels_x86.h includes itself for each instruction set: its lines between
#     "#else /* BITNET__ISA */" and "#endif /* BITNET__ISA */", which go where it does so. The name of
#     the one file does not matter then, and people may rename it.
#   - kernel headers include bitnet.h again for its row kernels: its lines from
#     "#ifdef BITNET__ROW_KERNELS" to the next line that begins with "#endif /* BITNET__ROW_KERNELS".
# If the headers are written differently one day, this fails.

# Prints a kernel header.
function paste(file, line, lines, second, in_second) {
    while ((getline line < file) > 0) {
        if (line == "#else /* BITNET__ISA */") in_second = 1
        else if (line == "#endif /* BITNET__ISA */") in_second = 0
        else if (in_second) second = second (line == again ? rows : line "\n")
    }
    close(file)
    while ((getline line < file) > 0) {
        if (line == "#else /* BITNET__ISA */") in_second = 1
        else if (line == "#endif /* BITNET__ISA */") in_second = 0
        if (line == "#include \"" file "\"") write(second, "the second part of " file)
        else if (line == again && !in_second) write(rows, "the row kernels of bitnet.h")
        else if (!in_second) write(line "\n", file)
        lines++
    }
    close(file)
    if (!lines) fail("cannot read " file " in this folder; run it from the repository's root")
}

# Prints text, unless it is empty or has an #include that was not replaced.
function write(text, name) {
    if (text == "" || text ~ /(^|\n)[ \t]*#[ \t]*include[ \t]*["B]/) {
        fail(name " has another form")
    }
    printf "%s", text
}

function fail(what) {
    print "one_file.awk: " what > "/dev/stderr"
    exit failed = 1
}

BEGIN { again = "#include \"bitnet.h\"" }

NR == 1 {
    version = $4
    print "/* bitnet_all.h - bitnet.h " version " and its kernel headers in one file; MIT licence, at the end"
    print ""
    print "   Include it instead of bitnet.h: nothing has to lie beside it. It is made of bitnet.h,"
    print "   bitnet_kernels_x86.h, bitnet_kernels_arm.h and bitnet_kernels_wasm.h of one release, and is"
    print "   the same program. What follows is their text, so where it says bitnet.h, read bitnet_all.h."
    print "   To use bitnet_grammar.h, include it after this file. */"
    print "#define BITNET_ALL_H"
    print ""
}

# They go where kernel headers ask for them.
$0 == "#ifdef BITNET__ROW_KERNELS" { in_rows = 1 }
in_rows {
    rows = rows $0 "\n"
    if ($0 ~ /^#endif \/\* BITNET__ROW_KERNELS/) in_rows = 0
    next
}

# Which header belongs to which CPU, in the order of these lines.
/^ *#(el)?if / { condition = $0; sub(/^ *#(el)?if +/, "", condition) }
/^ *#define BITNET__KERNEL_HEADER "/ {
    conditions[++headers] = condition
    split($0, quoted, "\"")
    names[headers] = quoted[2]
}

$0 == "#if defined(BITNET__KERNEL_HEADER) && defined(__has_include)" {
    print "#ifdef BITNET__KERNEL_HEADER"
    for (i = 1; i <= headers; i++) {
        print (i == 1 ? "#if " : "#elif ") conditions[i]
        paste(names[i])
    }
    print "#endif"
    pasted++
    replacing = 1
}
replacing && $0 == "#endif" { replacing = 0 }
!replacing { print }

END {
    if (!failed && (!headers || pasted != 1)) {
        print "one_file.awk: bitnet.h has another form" > "/dev/stderr"
        failed = 1
    }
    exit failed
}
