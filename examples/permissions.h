/* permissions.h - who may read a file that replaces another one

   A source file that includes this defines _DEFAULT_SOURCE and _FILE_OFFSET_BITS 64 before it
   includes anything. */
#ifndef PERMISSIONS_H
#define PERMISSIONS_H

#ifdef _WIN32
/* On Windows the folder decides. */
static inline void keep_permissions(int fd, const char *path) {
    (void)fd;
    (void)path;
}
#else
  #include <sys/stat.h>
  #include <unistd.h>

/* The file at path, if there is one, passes on its permissions to the new one, which is still
   empty, and its owner and group if that is allowed. If not, the group gets no more rights than
   everybody has. */
static inline void keep_permissions(int fd, const char *path) {
    struct stat st;
    mode_t mode;
    if (stat(path, &st)) return;
    mode = st.st_mode & 0777;
    if (fchown(fd, geteuid() ? (uid_t)-1 : st.st_uid, st.st_gid))
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    fchmod(fd, mode);
}
#endif

#endif
