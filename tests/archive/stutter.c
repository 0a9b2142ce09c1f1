/* A storage that stutters: the n-th call on a file below a folder fails with an errno. For LD_PRELOAD, armed by ctypes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static long left = 0;
static int wrong = 0, fired = 0;
static unsigned char ours[65536];

void stutter_arm(const char *path, long nth, int code) {
    strncpy(folder, path, sizeof folder - 1);
    wrong = code;
    fired = 0;
    __atomic_store_n(&left, nth, __ATOMIC_SEQ_CST);
}

int stutter_fired(void) { return fired; }

static int fails(void) {
    if (__atomic_load_n(&left, __ATOMIC_SEQ_CST) <= 0) return 0;
    if (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) != 0) return 0;
    fired = 1;
    errno = wrong;
    return 1;
}

static int below(const char *path) { return folder[0] && path && strstr(path, folder) != NULL; }

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list v; va_start(v, flags); mode = va_arg(v, int); va_end(v); }
#define OPENED(path, call) if (below(path)) { if (fails()) return -1; int fd = call; if (fd >= 0 && fd < 65536) ours[fd] = 1; return fd; } \
    int other = call; if (other >= 0 && other < 65536) ours[other] = 0; return other;
#define ON(fd) ((fd) >= 0 && (fd) < 65536 && ours[fd])

int open(const char *path, int flags, ...) { REAL(open); MODE(flags) OPENED(path, real(path, flags, mode)) }
int open64(const char *path, int flags, ...) { REAL(open64); MODE(flags) OPENED(path, real(path, flags, mode)) }
int openat(int at, const char *path, int flags, ...) { REAL(openat); MODE(flags) OPENED(path, real(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); MODE(flags) OPENED(path, real(at, path, flags, mode)) }
ssize_t read(int fd, void *b, size_t n) { REAL(read); if (ON(fd) && fails()) return -1; return real(fd, b, n); }
ssize_t pread(int fd, void *b, size_t n, off_t o) { REAL(pread); if (ON(fd) && fails()) return -1; return real(fd, b, n, o); }
ssize_t pread64(int fd, void *b, size_t n, off64_t o) { REAL(pread64); if (ON(fd) && fails()) return -1; return real(fd, b, n, o); }
ssize_t write(int fd, const void *b, size_t n) { REAL(write); if (ON(fd) && fails()) return -1; return real(fd, b, n); }
int fsync(int fd) { REAL(fsync); if (ON(fd) && fails()) return -1; return real(fd); }
int rename(const char *a, const char *b) { REAL(rename); if (below(a) && fails()) return -1; return real(a, b); }
int link(const char *a, const char *b) { REAL(link); if (below(a) && fails()) return -1; return real(a, b); }
int linkat(int c, const char *a, int d, const char *b, int f) { REAL(linkat); if (below(a) && fails()) return -1; return real(c, a, d, b, f); }
