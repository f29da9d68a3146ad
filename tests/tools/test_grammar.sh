#!/bin/sh
# Texts that random logits write under random JSON schemas, checked by ajv.
#     test_grammar.sh PATH_TO_GRAMMAR_TEXTS PATH_TO_MODEL FOLDER_WITH_AJV
# Prints FAIL lines and at the end "grammar: N passed, N failed, 0 skipped"; exit code 1 if a case failed.
[ $# -eq 3 ] || { echo "usage: $0 PATH_TO_GRAMMAR_TEXTS PATH_TO_MODEL FOLDER_WITH_AJV" >&2; exit 2; }
exec node "$(dirname "$0")/test_grammar.mjs" "$@"
