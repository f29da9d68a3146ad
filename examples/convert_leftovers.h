/* convert_leftovers.h - a part of convert.c: what a run leaves behind that is killed (kill -9, a
   power cut). Until the output is whole it is OUT.gguf.PID-N.part, which its run holds locked. The
   next run to write OUT.gguf names every such file that nobody holds, and leaves it alone: only its
   owner knows whether something in it is of use. */
#include <time.h>
#ifdef _WIN32
  #define LEFTOVER_ENDS "/\\:"
#else
  #define LEFTOVER_ENDS "/"
  #include <dirent.h>
#endif

/* Somebody writes it now, or that cannot be told. Its run locks it as soon as it has made it. */
static int is_in_use(const char *path, const file_stat *st, long pid) {
#ifdef _WIN32
    HANDLE h = CreateFileA(path, GENERIC_READ, 0, 0, OPEN_EXISTING, 0, 0);
    (void)st;
    (void)pid;
    if (h == INVALID_HANDLE_VALUE) return 1;
    CloseHandle(h);
    return 0;
#else
    struct flock lock;
    int unknown, fd = open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return 1;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    unknown = fcntl(fd, F_GETLK, &lock);
    close(fd);
    return unknown || lock.l_type != F_UNLCK ||
           (!st->st_size && (!kill((pid_t)pid, 0) || errno != ESRCH));
#endif
}

/* "3 hours", of so many seconds. */
static void format_age(double seconds, char out[32]) {
    static const struct { const char *unit; double seconds; } units[] = {
        {"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}
    };
    const size_t last = sizeof units / sizeof units[0] - 1;
    size_t i = 0;
    double n;
    while (i < last && seconds < units[i].seconds) i++;
    n = seconds > 0 ? (double)(int64_t)(seconds / units[i].seconds) : 0;
    snprintf(out, 32, "%.0f %s%s", n, units[i].unit, n == 1 ? "" : "s");
}

/* Is it base with ".PID-N.part" behind it? */
static int is_part_name(const char *name, const char *base) {
    const size_t n = strlen(base);
    const char *p = name + n + 1;
    int number;
    if (strncmp(name, base, n) || name[n] != '.') return 0;
    for (number = 0; number < 2; number++) {
        if (*p < '0' || *p > '9') return 0;
        while (*p >= '0' && *p <= '9') p++;
        if (number == 0 && *p++ != '-') return 0;
    }
    return !strcmp(p, ".part");
}

/* The file of that name, beside an output whose path has folder bytes before its own name. */
static void name_leftover(const char *output, size_t folder, const char *name) {
    char path[FILE_PATH], age[32];
    file_stat st;
    const int n = snprintf(path, sizeof path, "%.*s%s", (int)folder, output, name);
    if (n < 0 || n >= FILE_PATH || look_at(path, &st) || (st.st_mode & S_IFMT) != S_IFREG ||
        is_in_use(path, &st, strtol(name + strlen(output) - folder + 1, 0, 10))) return;
    format_age(difftime(time(0), st.st_mtime), age);
    say("%s: left behind %s ago by a run that was killed (%.1f MB); it can be deleted", path, age,
        (double)st.st_size / 1e6);
}

/* Names what earlier runs have left of this output. */
static void name_leftovers(const char *output) {
    const char *base = output + strlen(output);
    size_t folder;
    while (base > output && !strchr(LEFTOVER_ENDS, base[-1])) base--;
    folder = (size_t)(base - output);
    {
#ifdef _WIN32
        char pattern[FILE_PATH];
        WIN32_FIND_DATAA found;
        HANDLE h;
        const int n = snprintf(pattern, sizeof pattern, "%s.*.part", output);
        if (n < 0 || n >= FILE_PATH) return;
        h = FindFirstFileA(pattern, &found);
        if (h == INVALID_HANDLE_VALUE) return;
        do {
            if (is_part_name(found.cFileName, base))
                name_leftover(output, folder, found.cFileName);
        } while (FindNextFileA(h, &found));
        FindClose(h);
#else
        char path[FILE_PATH];
        const int n = snprintf(path, sizeof path, "%.*s.", (int)folder, output);
        DIR *dir = n < 0 || n >= FILE_PATH ? 0 : opendir(path);
        struct dirent *entry;
        while (dir && (entry = readdir(dir)) != 0)
            if (is_part_name(entry->d_name, base)) name_leftover(output, folder, entry->d_name);
        if (dir) closedir(dir);
#endif
    }
}
