# What llvm-cov show says of bitnet.h, as a table: for each section its lines and branches, and how
# many were reached; then the lines of @gguf and @tokenizer that were not.
#
#    12|    345|    code          a line and its count
#   |  Branch (12:9): [True: 3, False: 0]
function close_section() {
    if (!n_lines) return
    printf "%-12s %6d lines, %5.1f %%   %6d branches, %5.1f %%\n", section, n_lines,
        100 * lines / n_lines, n_branches, n_branches ? 100 * branches / n_branches : 100
    n_lines = lines = n_branches = branches = 0
}
BEGIN { section = "interface" }
/^ *[0-9]+\|[^|]*\|   @[a-z]+  / {
    close_section()
    section = $0
    sub(/^[^@]*@/, "", section)
    sub(/ .*/, "", section)
}
/^ *[0-9]+\| +[0-9.]+[kMGT]?\|/ {
    split($0, part, "|")
    n_lines++
    count = part[2]
    gsub(/ /, "", count)
    if (count != "0") lines++
    else if (section == "gguf" || section == "tokenizer") missed[++n_missed] = $0
}
/Branch \([0-9]+:[0-9]+\): \[/ {
    n_branches += 2
    branches += ($0 !~ /True: 0[,]/) + ($0 !~ /False: 0\]/)
    if ($0 ~ /Folded/) { n_branches -= 2; branches -= 2 }
}
END {
    close_section()
    if (n_missed) print "\nnot reached in @gguf and @tokenizer:"
    for (i = 1; i <= n_missed; i++) print missed[i]
}
