# Compares the table of contents of bitnet.h with the sections of the file:
#     awk -f tests/checks/contents.awk bitnet.h
# The names and their order must agree. Each section may use names of the sections above it, and
# such functions of sections below as it, or a section above, declares. The last column of the table
# must say of which sections ("all above"), those below in brackets; api, setup and util are open to
# all. Prints what is wrong, and fails if anything is. With -v show=1 it prints only what each
# section leans on.
#
# A banner is a line of "=" and then "   @name  what it owns". Lines of the table are indented deeper.
# A function belongs to the section that defines it, any other name to the one where it comes first.

function wrong(text) { print FILENAME ": " text; failed = 1 }

# The line without comments and strings.
function code(line,    end, kept) {
    gsub(/\\"/, "", line)
    gsub(/"[^"]*"/, "", line)
    for (;;) {
        if (in_comment) {
            if (!(end = index(line, "*/"))) return kept
            line = substr(line, end + 2)
            in_comment = 0
        }
        if (!(end = index(line, "/*"))) { sub(/\/\/.*/, "", line); return kept line }
        kept = kept substr(line, 1, end - 1) " "
        line = substr(line, end + 2)
        in_comment = 1
    }
}

# Takes in what begins at the left margin: is it a function, and is it defined here?
function finish(text,    name) {
    if (!match(text, /bitnet_[a-z0-9_]+ *\(/)) return
    name = substr(text, RSTART, RLENGTH)
    sub(/ *\(/, "", name)
    if (text ~ /=/ && index(text, "=") < RSTART) return
    if (text ~ /\{/) defined[name] = section
    else if (section != "api" && !(name in promised)) promised[name] = section
}

/^   CONTENTS/ { table = 1 }
table && /\*\// { table = 0 }
table && /^ +@[a-z]+ / {
    name = substr($1, 2)
    listed[++n_listed] = name
    place[name] = n_listed
    n = split($0, cells, /  +/)
    column[name] = " " cells[n] " "
}
banner && $1 ~ /^@/ { found[++n_found] = section = substr($1, 2) }
{
    banner = $0 ~ /^\/\* =+$/
    line = code($0)
    if (line ~ /^ *# *undef/) next
    if (line ~ /^(static|BITNET_API) /) { begun = 1; text = "" }
    if (begun) {
        text = text " " line
        if (line ~ /[;{]/) { finish(text); begun = 0 }
    }
    while (match(line, /(bitnet|BITNET)_[A-Za-z0-9_]+/)) {
        name = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        if (!(name in first)) first[name] = section
        uses[section, name] = 1
    }
}
END {
    for (use in uses) {
        split(use, part, SUBSEP)
        user = part[1]
        owner = part[2] in defined ? defined[part[2]] : first[part[2]]
        if (user == "api" || owner == user || owner ~ /^(api|setup|util|)$/) continue
        if (place[owner] > place[user] && part[2] in promised &&
            place[promised[part[2]]] <= place[user]) owner = "(" owner ")"
        leans[user, owner] = leans[user, owner] " " part[2]
    }
    for (i = 1; show && i <= n_found; i++) {
        printf "@%-10s", found[i]
        for (j = 1; j <= n_found; j++)
            if ((found[i], found[j]) in leans) printf " %s", found[j]
        for (j = 1; j <= n_found; j++)
            if ((found[i], "(" found[j] ")") in leans) printf " (%s)", found[j]
        print ""
    }
    if (show) exit
    for (i = 1; i <= n_listed || i <= n_found; i++)
        if (listed[i] != found[i])
            wrong("section " i " is @" found[i] ", but @" listed[i] " in the table of contents")
    for (name in promised)
        if (name in defined && place[defined[name]] < place[promised[name]])
            wrong(name " of @" defined[name] " is declared in @" promised[name])
    for (pair in leans) {
        split(pair, part, SUBSEP)
        if (place[part[2]] > place[part[1]])
            wrong("@" part[1] " uses what is below it, in @" part[2] ":" leans[pair])
        else if (!index(column[part[1]], " " part[2] " ") &&
                 !(part[2] !~ /\(/ && index(column[part[1]], " all above ")))
            wrong("@" part[1] " leans on @" part[2] ", which the table leaves out:" leans[pair])
    }
    for (i = 1; i <= n_listed; i++) {
        n = split(column[listed[i]], part, " ")
        for (j = 1; j <= n; j++)
            if (part[j] !~ /^(api|setup|util|all|above|-)$/ && !((listed[i], part[j]) in leans))
                wrong("@" listed[i] " does not lean on @" part[j] ", which the table names")
    }
    exit failed
}
