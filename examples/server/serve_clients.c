#include "serve_clients.h"
#include "serve.h"
#include "serve_system.h"
#include "../utf8.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- keys ---- */

enum { MOST_KEYS = 65536, KEY_LINE = 1024 };

static char **keys;                    /* [n_keys] */
static int n_keys;

int clients_have_keys(void) { return n_keys > 0; }

static int add_key(const char *text) {
    char **more = n_keys < MOST_KEYS ? (char **)realloc(keys, ((size_t)n_keys + 1) * sizeof *keys)
                                     : 0;
    if (more) keys = more;
    if (!more || !(keys[n_keys] = strdup(text))) return 0;
    n_keys++;
    return 1;
}

/* Reads a line. Returns its bytes, which may have a NUL among them; 0: there are no more. */
static size_t read_line(char line[KEY_LINE], FILE *f) {
    size_t n = KEY_LINE;
    memset(line, '\n', KEY_LINE);      /* so that the last NUL is the one behind the bytes */
    if (!fgets(line, KEY_LINE, f)) return 0;
    while (line[n - 1]) n--;
    return n - 1;
}

/* A key is a line; blanks around it, empty lines and lines that begin with # do not count. Some
   editors put a byte order mark in front of the first line. */
static int read_key_file(const char *path) {
    char line[KEY_LINE];
    FILE *f = utf8_fopen(path, "rb");
    int number = 0, ok = f != 0;
    size_t n;
    if (!f) serve_say("--api-key-file %s: %s", path, strerror(errno));
    while (ok && (n = read_line(line, f)) > 0) {
        char *from = line + (number ? 0 : utf8_mark(line, n)), *end;
        from += strspn(from, " \t");
        end = from + strcspn(from, "\r\n");
        number++;
        if ((!*end && !feof(f)) || strlen(line) < n) {
            serve_say("--api-key-file %s, line %d: it is too long, or has a NUL", path, number);
            ok = 0;
        }
        while (end > from && (end[-1] == ' ' || end[-1] == '\t')) end--;
        *end = 0;
        if (ok && *from && *from != '#' && !add_key(from)) {
            serve_say("--api-key-file %s: there are too many keys, or there is no memory", path);
            ok = 0;
        }
    }
    if (ok && ferror(f)) {
        serve_say("--api-key-file %s: %s", path, strerror(errno));
        ok = 0;
    }
    if (f) fclose(f);
    return ok;
}

int clients_read_keys(void) {
    const char *one = settings.api_key ? settings.api_key : getenv("BITNET_API_KEY");
    const char *file = settings.key_file;
    if (one && *one && !add_key(one)) return 1;
    if (file && !read_key_file(file)) return 2;
    if (file && !n_keys) {             /* rather than letting all in */
        serve_say("--api-key-file %s: it has no key", file);
        return 2;
    }
    return 0;
}

/* The same time for any wrong key. */
static int same_key(const char *key, const char *given) {
    const size_t n = strlen(key), m = strlen(given);
    unsigned difference = n != m;
    size_t i;
    for (i = 0; i < m; i++) difference |= (unsigned)(given[i] ^ key[n ? i % n : 0]);
    return !difference;
}

/* The number of the key that a request has, from 1 on; 0: none of ours. */
static int key_of(struct MHD_Connection *c) {
    const char *bearer = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-api-key");
    int i, found = 0;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7)) given = bearer + 7;
    for (i = 0; given && i < n_keys; i++)
        if (same_key(keys[i], given)) found = i + 1;
    return found;
}

/* ---- addresses ---- */

/* As text, without what an IPv6 socket puts before an IPv4 address. "unix": a Unix socket. */
static void write_address(const struct sockaddr *a, char out[CLIENT_ADDRESS]) {
    const int family = a ? a->sa_family : AF_UNSPEC;
    strcpy(out, family == AF_INET || family == AF_INET6 ? "" : "unix");
    if (family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, out,
                  CLIENT_ADDRESS);
    if (family != AF_INET6) return;
    inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, out,
              CLIENT_ADDRESS);
    if (!strncmp(out, "::ffff:", 7) && strchr(out, '.')) memmove(out, out + 7, strlen(out + 7) + 1);
}

static void address_of(struct MHD_Connection *c, char out[CLIENT_ADDRESS]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    write_address(info ? info->client_addr : 0, out);
}

/* Is it one of --trusted-proxy, which are divided by commas? Only a proxy has the Unix socket. */
static int is_trusted(const char *address) {
    const char *at = settings.trusted_proxy ? settings.trusted_proxy : "";
    const size_t n = strlen(address);
    if (!strcmp(address, "unix")) return 1;
    for (; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == n && !memcmp(at, address, n)) return 1;
    return 0;
}

static int is_numeric(const char *text) {
    unsigned char room[16];
    return inet_pton(AF_INET, text, room) == 1 || inet_pton(AF_INET6, text, room) == 1;
}

/* A network or a name would never be that of a connection, and all of its clients would be one. */
int clients_check_proxies(void) {
    const char *at = settings.trusted_proxy ? settings.trusted_proxy : "";
    for (; *at; at += strcspn(at, ","), at += *at == ',') {
        char one[CLIENT_ADDRESS], own[CLIENT_ADDRESS];
        unsigned char room[16];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
        if (inet_pton(AF_INET, one, room) == 1) continue;
        if (inet_pton(AF_INET6, one, room) == 1 && inet_ntop(AF_INET6, room, own, sizeof own) &&
            !strcmp(one, own)) continue;
        serve_say("--trusted-proxy %s: %s is no address, such as 10.0.0.1 or fd00::1",
                  settings.trusted_proxy, one);
        return 2;
    }
    return 0;
}

static enum MHD_Result keep_last(void *cls, enum MHD_ValueKind kind, const char *key,
                                 const char *value) {
    (void)kind;
    if (!strcasecmp(key, "X-Forwarded-For")) *(const char **)cls = value;
    return MHD_YES;
}

/* A proxy adds the address that it has seen at the end of X-Forwarded-For; what is in front of that
   may be anything. So the last one that is no proxy of ours counts. */
static void follow_proxies(struct MHD_Connection *c, char address[CLIENT_ADDRESS]) {
    const char *list = 0, *end;
    MHD_get_connection_values(c, MHD_HEADER_KIND, keep_last, &list);
    end = list ? list + strlen(list) : 0;
    while (list && end > list && is_trusted(address)) {
        const char *from;
        char one[CLIENT_ADDRESS];
        while (end > list && strchr(" \t,", end[-1])) end--;
        for (from = end; from > list && !strchr(" \t,", from[-1]);) from--;
        if (from == end || (size_t)(end - from) >= sizeof one) return;
        memcpy(one, from, (size_t)(end - from));
        one[end - from] = 0;
        if (!is_numeric(one)) return;
        strcpy(address, one);
        end = from;
    }
}

/* Not 0. */
static uint64_t id_of(const char *address) {
    unsigned char bytes[16] = {0};
    uint64_t word = 0;
    size_t i;
    if (inet_pton(AF_INET6, address, bytes) != 1) inet_pton(AF_INET, address, bytes);
    for (i = 0; i < 8; i++) word = word << 8 | bytes[i];
    word = request_mix(word);
    return word ? word : 1;
}

uint64_t client_of_address(const struct sockaddr *a) {
    char address[CLIENT_ADDRESS];
    write_address(a, address);
    if (is_trusted(address) || !strcmp(address, "127.0.0.1") || !strcmp(address, "::1")) return 0;
    return id_of(address);
}

void client_identify(struct MHD_Connection *c, client *out) {
    address_of(c, out->address);
    follow_proxies(c, out->address);
    out->key = key_of(c);
    out->id = n_keys > 1 ? request_mix((uint64_t)out->key) : id_of(out->address);
}

/* ---- who may come in ---- */

static int is_this_machine(const char *name) {
    const char *const names[] = {"localhost", "127.0.0.1", "[::1]", settings.host};
    size_t i;
    for (i = 0; i < sizeof names / sizeof names[0]; i++) {
        const size_t n = strlen(names[i]);
        if (!strncasecmp(name, names[i], n) && (!name[n] || name[n] == ':')) return 1;
    }
    return 0;
}

/* A page of another site can send requests to this machine by name or by address. Without a key,
   the names in its requests give it away. It cannot reach a Unix socket, but through a proxy, which
   has names of its own. */
http_error client_check(struct MHD_Connection *c, int needs_key) {
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    const char *name = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    const char *site = origin ? strstr(origin, "://") : 0;
    char address[CLIENT_ADDRESS];
    int is_proxy;
    if (n_keys && needs_key && !key_of(c))
        return refuse(401, 0, "the API key is missing or wrong: send Authorization: Bearer "
                      "KEY");
    if (n_keys || settings.open_to_all) return refuse_none();
    address_of(c, address);
    is_proxy = !strcmp(address, "unix");
    if (name && !is_proxy && !is_this_machine(name))
        return refuse(403, 0, "this server is for this machine only: its name is localhost");
    if (origin && settings.allowed_origin &&
        (!strcmp(settings.allowed_origin, "*") || !strcmp(settings.allowed_origin, origin)))
        return refuse_none();
    if (is_proxy && site && name && !strcasecmp(site + 3, name)) return refuse_none();
    if (origin && (!site || !is_this_machine(site + 3)))
        return refuse(403, 0, "pages of this origin are not let in: see --allow-origin");
    return refuse_none();
}
