# planted.txt and a header to the same header with all its faults, each of which is in force while
# planted is the number of its line; the list of faults goes to the file in `list`. A fault whose text
# is no longer there is named, and the exit code is 1.
#
#   awk -v header=NAME -v machine=NAME -v list=FILE -f planted.awk planted.txt HEADER >COPY

FNR == NR {
    sub(/\r$/, "")
    if ($0 ~ /^= /) here = $2 == header && index($0 " ", " " machine " ")
    else if (here && $0 ~ /^@ /) {
        n++
        line[n] = FNR
        anchor[n] = substr($0, index($0, " in ") + 4)
        split(substr($0, 3, index($0, " in ") - 3), words, " ")
        for (i = 1; i in words; i++) word[n, i] = words[i]
        delete words
    }
    else if (here && $0 ~ /^- /) old[n] = substr($0, 3)
    else if (here && $0 ~ /^\+ /) new[n] = substr($0, 3)
    next
}
{ text = text $0 "\n" }

# The first place of `part` in the paragraph that begins with the first `from`; 0: none.
function place(from, part, at, rest, end) {
    at = index(text, from)
    if (!at) return 0
    rest = substr(text, at)
    end = index(rest, "\n\n")
    if (end) rest = substr(rest, 1, end)
    rest = index(rest, part)
    return rest ? at + rest - 1 : 0
}

# Places are those in the header as it is. A fault in the text of another one goes in first, and
# makes the other's text longer.
END {
    for (f = 1; f <= n; f++) {
        # `...` is the expression among what stands around it; without it, the text is all of it.
        if (split(old[f], part, "`") == 1) { part[2] = part[1]; part[1] = part[3] = "" }
        at[f] = place(anchor[f], part[1] part[2] part[3])
        if (!at[f]) {
            printf "FAIL planted.txt:%d: nothing to break: %s\n", line[f], old[f] >"/dev/stderr"
            bad = 1
            continue
        }
        at[f] += length(part[1])
        size[f] = length(part[2])
        for (i = 2; (f, i) in word; i++)
            printf "{%d, \"%s\", \"%s\"},\n", line[f], word[f, i], word[f, 1] >>list
    }
    while ((f = shortest()) != 0) plant(f)
    printf "%s", text
    exit bad
}

function shortest(  f, best) {
    for (f = 1; f <= n; f++)
        if (at[f] && (!best || size[f] < size[best])) best = f
    return best
}

function plant(f,  before, after, here, i) {
    before = "(planted != " line[f] " ? ("
    after = ") : (" new[f] "))"
    here = at[f]
    text = substr(text, 1, here - 1) before substr(text, here, size[f]) after \
        substr(text, here + size[f])
    at[f] = 0
    for (i = 1; i <= n; i++)
        if (at[i] >= here + size[f]) at[i] += length(before after)
        else if (at[i] && at[i] <= here && at[i] + size[i] >= here + size[f])
            size[i] += length(before after)
}
