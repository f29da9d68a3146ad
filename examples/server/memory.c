#include "memory.h"
#include <stdio.h>
#include <string.h>
#ifdef _WIN32
  #include <windows.h>
#else
  #include <unistd.h>
#endif

enum { PATH = 1024, SHORT_TEXT = 256 };

/* ---- what is there ---- */

/* The number in a file that has one alone. Returns 0 if there is none, as in "max". */
static int read_number(const char *folder, const char *name, int64_t *to) {
    char path[PATH];
    long long n;
    FILE *f;
    int is_there;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH) return 0;
    f = fopen(path, "rb");
    if (!f) return 0;
    is_there = fscanf(f, "%lld", &n) == 1 && n >= 0;
    fclose(f);
    if (is_there) *to = n;
    return is_there;
}

/* The sum of what stands behind these names in a file of lines "NAME NUMBER". Returns how many of
   them are there. */
static int add_named(const char *folder, const char *name, const char *const names[2],
                     int64_t *sum) {
    char path[PATH], line[256], word[64];
    long long n;
    FILE *f;
    int found = 0;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH) return 0;
    f = fopen(path, "rb");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %lld", word, &n) != 2) continue;
        if (strcmp(word, names[0]) && strcmp(word, names[1])) continue;
        *sum += n;
        found++;
    }
    fclose(f);
    return found;
}

/* What the system calls available counts as left, of the machine and of a group alike: what is
   free, and the file cache but for tmpfs. */
static void take_least(memory *m, int64_t limit, int64_t left, int is_group) {
    if (left < 0) left = 0;
    if (left > limit) left = limit;
    if (left >= m->left) return;
    m->left = left;
    m->limit = limit;
    m->is_group = is_group;
}

/* One control group of version 2. memory.high does not kill, but slows down so much that nothing
   goes on. */
static void look_at_group_2(memory *m, const char *folder) {
    static const char *const files[] = {"active_file", "inactive_file"};
    int64_t most = INT64_MAX, high, used, cache = 0;
    if (!read_number(folder, "memory.current", &used)) return;
    read_number(folder, "memory.max", &most);
    if (read_number(folder, "memory.high", &high) && high < most) most = high;
    add_named(folder, "memory.stat", files, &cache);
    if (most < INT64_MAX) take_least(m, most, most - used + cache, 1);
}

/* One of version 1, in which a group without a limit has one of almost 2^63. */
static void look_at_group_1(memory *m, const char *folder) {
    static const char *const files[] = {"total_active_file", "total_inactive_file"};
    int64_t most, used, cache = 0;
    if (!read_number(folder, "memory.limit_in_bytes", &most) || most >= INT64_MAX / 2 ||
        !read_number(folder, "memory.usage_in_bytes", &used)) return;
    add_named(folder, "memory.stat", files, &cache);
    take_least(m, most, most - used + cache, 1);
}

/* This group and all above it. Folders that are not there are none: inside a container a group has
   the name that it has outside, but what is mounted may begin with the container's own. */
static void look_at_groups(memory *m, const char *mount, char *group,
                           void (*look)(memory *, const char *)) {
    char folder[PATH];
    for (;; *strrchr(group, '/') = 0) {
        if (snprintf(folder, sizeof folder, "%s%s", mount, group) < PATH) look(m, folder);
        if (!*group) return;
    }
}

/* A line of /proc/self/cgroup: number:controllers:/group. Version 2 has no controllers. */
static void look_at_line(memory *m, const char *root, char *line) {
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : 0;
    char mount[PATH], controllers[PATH];
    int is_2;
    if (!group || group[1] != '/') return;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    while (*group && group[strlen(group) - 1] == '/') group[strlen(group) - 1] = 0;
    is_2 = !list[1];
    if (snprintf(controllers, sizeof controllers, ",%s,", list + 1) >= PATH ||
        (!is_2 && !strstr(controllers, ",memory,")) ||
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s", root, is_2 ? "" : "/memory") >= PATH)
        return;
    look_at_groups(m, mount, group, is_2 ? look_at_group_2 : look_at_group_1);
}

/* The machine, where there is no /proc/meminfo. */
static void ask_system(memory *m) {
#ifdef _WIN32
    MEMORYSTATUSEX all;
    all.dwLength = sizeof all;
    if (GlobalMemoryStatusEx(&all))
        take_least(m, (int64_t)all.ullTotalPhys, (int64_t)all.ullAvailPhys, 0);
#else
    const int64_t size = sysconf(_SC_PAGESIZE), all = sysconf(_SC_PHYS_PAGES);
#ifdef _SC_AVPHYS_PAGES
    const int64_t left = sysconf(_SC_AVPHYS_PAGES);
#else
    const int64_t left = all / 2;
#endif
    if (size > 0 && all > 0 && left >= 0) take_least(m, all * size, left * size, 0);
#endif
}

memory memory_look(const char *root) {
    static const char *const total[] = {"MemTotal:", "MemTotal:"},
                      *const available[] = {"MemAvailable:", "MemAvailable:"};
    memory m = {INT64_MAX, INT64_MAX, 0};
    char path[PATH], line[4 * PATH];
    int64_t all = 0, left = 0;
    FILE *f;
    if (snprintf(path, sizeof path, "%s/proc", root) >= PATH) return m;
    if (add_named(path, "meminfo", total, &all) && add_named(path, "meminfo", available, &left))
        take_least(&m, all << 10, left << 10, 0);
    else if (!*root) ask_system(&m);
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= PATH) return m;
    if (!(f = fopen(path, "rb"))) return m;
    while (fgets(line, sizeof line, f)) look_at_line(&m, root, line);
    fclose(f);
    return m;
}

/* ---- what is needed ---- */

/* A model that has packed its weights for itself does not read those of the file any more. */
memory_need memory_needed(const bitnet_model *model, const engine_params *params) {
    bitnet_model_info info;
    memory_need need;
    bitnet_model_get_info(model, &info);
    need.loaded = (int64_t)info.own_bytes;
    need.file = (int64_t)info.file_bytes - need.loaded;
    if (need.file < (int64_t)info.head_bytes) need.file = (int64_t)info.head_bytes;
    need.buffers = (int64_t)(engine_bytes(model, params) + info.head_copy_bytes);
    need.token = (int64_t)engine_token_bytes(model, params);
    return need;
}

/* A sixteenth stays free for requests, results, stacks and the kernel. */
static int64_t tokens_in(int64_t bytes, const memory_need *need) {
    bytes -= bytes / 16 + need->file + need->buffers;
    return bytes > 0 ? bytes / (need->token ? need->token : 1) : 0;
}

int64_t memory_tokens(const memory *m, const memory_need *need) {
    return tokens_in(m->left, need);
}

int memory_can_do(const memory_need *need, int64_t left) {
    return tokens_in(left, need) >= SHORT_TEXT;
}

const char *memory_describe(const memory *m, const memory_need *need, char *text) {
    snprintf(text, MEMORY_TEXT, "%s has %lld MB, of which %lld MB are left for %lld MB of the "
             "model's file, %lld MB of buffers and %lld KB for each token of a text",
             m->is_group ? "the control group (a container's or a job's limit)" : "this machine",
             (long long)(m->limit >> 20), (long long)(m->left >> 20),
             (long long)(need->file >> 20), (long long)(need->buffers >> 20),
             (long long)((need->token + 1023) >> 10));
    return text;
}
