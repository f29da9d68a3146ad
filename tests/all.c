/* The whole test program as one translation unit: the implementation is compiled once, and the
   files' static names share one scope. test_kernels.c comes last, since locals before it are named
   like its variables. */

#include "run.c"

#include "test_tokenizer.c"
#include "test_gguf.c"
#include "test_model.c"
#include "test_import.c"
#include "test_lookup.c"
#include "test_screen.c"
#include "test_heads.c"
#include "test_families.c"
#include "test_spm.c"
#include "test_files.c"
#include "test_sources.c"
#include "test_json.c"
#include "test_hostile.c"
#include "test_hostile_model.c"
#include "test_text.c"
#include "test_machine.c"
#include "test_tiny.c"
#include "test_kernels.c"
