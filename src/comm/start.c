/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of cards by the program's function, and what a rank knows of its machine. */
#include "comm/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static uint64_t
inode_of(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 ? (uint64_t)about.st_ino : 0;
}

/* The kernel that runs, and of it the namespaces in which shared memory and addresses have
 * their names: processes that differ in them are on different machines to each other. */
void
sti_start_node(char *text)
{
    char boot[64] = "?";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof(boot) - 1);

        boot[n > 0 ? n : 0] = '\0';
        boot[strcspn(boot, "\n")] = '\0';
        (void)close(fd); /* read only: nothing to lose */
    }
    (void)snprintf(text, STI_CARD_TEXT_SIZE, "%s-%llx-%llx", boot,
                   (unsigned long long)inode_of("/proc/self/ns/net"),
                   (unsigned long long)inode_of("/proc/self/ns/ipc"));
}

int
sti_start_random(void *bytes, uint32_t n_bytes)
{
    ssize_t n;

    do
        n = getrandom(bytes, n_bytes, 0);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)n_bytes ? 0 : -EIO; /* up to 256 bytes come whole */
}

int
sti_start_exchange(struct sti_start *start, stk_error *err)
{
    const struct sti_comm_opts *opts = start->opts;

    if (opts->world == 1) {
        memcpy(start->cards, start->mine, start->n_mine);
        return 0;
    }
    if (!opts->exchange)
        return opts->rank == 0 ? sti_meet_wait(start, err) : sti_meet_come(start, err);

    int rc = opts->exchange(opts->exchange_context, start->mine, STI_COMM_CARD_MAX, start->cards);

    if (rc < 0)
        return sti_error_set(err, rc,
                             "the program's function could not exchange the ranks' addresses: %s",
                             sti_error_text(rc));
    return 0;
}
