/* A storage that stutters: the n-th call on a file below a folder fails with an errno. For LD_PRELOAD, armed by ctypes.
   With errno 0 no call fails: before the n-th another program makes the first commit of the table in the folder. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static long left = 0;
static char commit[4096];
static int wrong = 0, fired = 0;
static unsigned char ours[65536];

void stutter_arm(const char *path, long nth, int code) {
    strncpy(folder, path, sizeof folder - 1);
    wrong = code;
    fired = 0;
    __atomic_store_n(&left, nth, __ATOMIC_SEQ_CST);
}

void stutter_commit(const char *path) { strncpy(commit, path, sizeof commit - 1); }

int stutter_fired(void) { return fired; }

static void other(void) {
    char name[4200];
    snprintf(name, sizeof name, "%s", folder);
    mkdir(name, 0755);
    snprintf(name, sizeof name, "%s/_delta_log", folder);
    mkdir(name, 0755);
    snprintf(name, sizeof name, "%s/_delta_log/%020d.json", folder, 0);
    link(commit, name); /* fails where there is a first commit */
}

static int fails(void) {
    if (__atomic_load_n(&left, __ATOMIC_SEQ_CST) <= 0) return 0;
    if (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    fired = 1;
    if (!wrong) {
        other();
        return 0;
    }
    errno = wrong;
    return 1;
}

static int below(const char *path) { return folder[0] && path && strstr(path, folder) != NULL; }

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list v; va_start(v, flags); mode = va_arg(v, int); va_end(v); }
#define OPENED(path, call) if (below(path)) { if (fails()) return -1; int fd = call; if (fd >= 0 && fd < 65536) ours[fd] = 1; return fd; } \
    int other = call; if (other >= 0 && other < 65536) ours[other] = 0; return other;
#define ON(fd) ((fd) >= 0 && (fd) < 65536 && ours[fd])
#define AT(path) if (below(path) && fails()) return -1;
#define TO(fd) if (ON(fd) && fails()) return -1;

int open(const char *path, int flags, ...) { REAL(open); MODE(flags) OPENED(path, real(path, flags, mode)) }
int open64(const char *path, int flags, ...) { REAL(open64); MODE(flags) OPENED(path, real(path, flags, mode)) }
int openat(int at, const char *path, int flags, ...) { REAL(openat); MODE(flags) OPENED(path, real(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); MODE(flags) OPENED(path, real(at, path, flags, mode)) }
DIR *opendir(const char *path) { REAL(opendir); if (below(path) && fails()) return NULL; return real(path); }
ssize_t read(int fd, void *b, size_t n) { REAL(read); TO(fd) return real(fd, b, n); }
ssize_t pread(int fd, void *b, size_t n, off_t o) { REAL(pread); TO(fd) return real(fd, b, n, o); }
ssize_t pread64(int fd, void *b, size_t n, off64_t o) { REAL(pread64); TO(fd) return real(fd, b, n, o); }
ssize_t write(int fd, const void *b, size_t n) { REAL(write); TO(fd) return real(fd, b, n); }
int fsync(int fd) { REAL(fsync); TO(fd) return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); TO(fd) return real(fd); }
int flock(int fd, int how) { REAL(flock); TO(fd) return real(fd, how); }
int stat(const char *path, struct stat *s) { REAL(stat); AT(path) return real(path, s); }
int stat64(const char *path, struct stat64 *s) { REAL(stat64); AT(path) return real(path, s); }
int lstat64(const char *path, struct stat64 *s) { REAL(lstat64); AT(path) return real(path, s); }
int fstatat(int at, const char *path, struct stat *s, int f) { REAL(fstatat); AT(path) return real(at, path, s, f); }
int fstatat64(int at, const char *path, struct stat64 *s, int f) { REAL(fstatat64); AT(path) return real(at, path, s, f); }
int statx(int at, const char *path, int f, unsigned m, struct statx *s) { REAL(statx); AT(path) return real(at, path, f, m, s); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); AT(path) return real(path, mode); }
int unlink(const char *path) { REAL(unlink); AT(path) return real(path); }
int rename(const char *a, const char *b) { REAL(rename); AT(a) return real(a, b); }
int link(const char *a, const char *b) { REAL(link); AT(a) return real(a, b); }
int linkat(int c, const char *a, int d, const char *b, int f) { REAL(linkat); AT(a) return real(c, a, d, b, f); }
