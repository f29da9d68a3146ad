/* instructions.c - a plugin of qemu-user (7 or newer): counts the instructions that each function
   executes, and writes "FUNCTION COUNT" lines to the file that COUNTS names

   It checks what inner_loops.py computes: two runs that differ only in their number of tokens show
   what a token takes. For the 2B model (2 GB of memory, 3 minutes each):

       gcc -O2 -fPIC -shared tests/checks/instructions.c -o instructions.so
       aarch64-linux-gnu-gcc -O2 -static examples/bench/[a-z]*.c examples/json/[a-z]*.c -o bench
       for n in 4 12; do COUNTS=tg$n qemu-aarch64 -plugin ./instructions.so ./bench -t 1 -r 1 \
           --kernel neon-dotprod --compare 'echo x 1' --compare-form "x {tg$n}"; done
       LC_ALL=C join tg4 tg12 | awk '{ print $1, ($3 - $2) / 8 }' | sort -k 2 -g

   bench writes the tokens twice: all functions but those of the heads count double. ({pp1} and
   {pp129} show reading.) The files are sorted by name. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From qemu-plugin.h, which few systems install. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;                 /* instructions that are executed together */
struct qemu_plugin_insn;
#define EXPORTED __attribute__((visibility("default")))
enum { ADD_U64 = 0 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*fn)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*fn)(qemu_plugin_id_t, void *),
                                    void *ud);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *ptr,
                                              uint64_t n);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *insn);
extern int qemu_plugin_version;
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv);

EXPORTED int qemu_plugin_version = 1;

enum { MAX_FUNCTIONS = 8192, NAME = 64 };
static struct function { char name[NAME]; uint64_t n; } functions[MAX_FUNCTIONS];
static int n_functions;

/* Called once for each block, before it is first executed; one thread at a time. */
static void on_block(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    const char *symbol = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
    int i = 0;
    (void)id;
    if (!symbol) symbol = "?";
    while (i < n_functions && strncmp(functions[i].name, symbol, NAME - 1)) i++;
    if (i == MAX_FUNCTIONS) exit(1);
    if (i == n_functions) snprintf(functions[n_functions++].name, NAME, "%s", symbol);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &functions[i].n,
                                             qemu_plugin_tb_n_insns(tb));
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct function *)x)->name, ((const struct function *)y)->name);
}

static void at_exit(qemu_plugin_id_t id, void *ud) {
    const char *path = getenv("COUNTS");
    FILE *f = path ? fopen(path, "w") : 0;
    int i;
    (void)id;
    (void)ud;
    if (!f) exit(1);
    qsort(functions, (size_t)n_functions, sizeof functions[0], by_name);
    for (i = 0; i < n_functions; i++)
        fprintf(f, "%s %llu\n", functions[i].name, (unsigned long long)functions[i].n);
    fclose(f);
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    (void)info;
    (void)argc;
    (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    qemu_plugin_register_atexit_cb(id, at_exit, 0);
    return 0;
}
