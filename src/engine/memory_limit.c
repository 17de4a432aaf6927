/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory limit. /proc/self/cgroup names this process's group per hierarchy; the limit
 * is the smallest on the way from that group up to the root. Inside a container the path
 * may lie outside of what is mounted; then the mounted root's own limit counts, which is
 * the container's.
 */
#include "engine/memory_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

/* Reads a small file as text. Returns 0 or -errno. */
static int
read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, text, size - 1);
    int rc = n < 0 ? -errno : 0;
    (void)close(fd); /* read only: nothing to lose */
    text[n > 0 ? n : 0] = '\0';
    return rc;
}

static uint64_t
limit_in_file(const char *path)
{
    char text[64];
    char *end;

    if (read_text(path, text, sizeof(text)) < 0)
        return UINT64_MAX;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    return end == text || errno != 0 || value == 0 ? UINT64_MAX : value; /* "max": no limit */
}

/* The smallest limit of group and of all above it, below a mount point. */
static uint64_t
limit_up_from(const char *mount, char *group, const char *file)
{
    uint64_t limit_bytes = UINT64_MAX;

    for (;;) {
        char path[1536];
        int n_chars = snprintf(path, sizeof(path), "%s%s/%s", mount, group, file);

        if (n_chars > 0 && (size_t)n_chars < sizeof(path)) {
            uint64_t here_bytes = limit_in_file(path);

            if (here_bytes < limit_bytes)
                limit_bytes = here_bytes;
        }
        char *slash = strrchr(group, '/');
        if (!slash)
            return limit_bytes;
        *slash = '\0';
    }
}

uint64_t
sti_memory_limit_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t limit_bytes =
        pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
    char text[2048];
    char *state = NULL;

    if (read_text("/proc/self/cgroup", text, sizeof(text)) < 0)
        return limit_bytes;
    for (char *line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        uint64_t here_bytes = UINT64_MAX;

        if (!group)
            continue;
        *group++ = '\0';
        if (names[1] == '\0')
            here_bytes = limit_up_from("/sys/fs/cgroup", group, "memory.max");
        else if (strstr(names + 1, "memory"))
            here_bytes = limit_up_from("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        if (here_bytes < limit_bytes)
            limit_bytes = here_bytes;
    }
    return limit_bytes;
}

int
sti_memory_check(uint64_t n_bytes, const char *what, stk_error *err)
{
    uint64_t limit_bytes = sti_memory_limit_bytes();

    if (n_bytes <= limit_bytes)
        return 0;
    return sti_error_set(err, STK_E_INFEASIBLE,
                         "%s of %" PRIu64 " bytes is more than the %" PRIu64
                         " that the machine or the control group allows",
                         what, n_bytes, limit_bytes);
}
