/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making room. A subfolder is ours if it has our name and its lock file begins with our
 * text; it is in use as long as somebody holds that lock. The lock is held while its
 * files go, and the lock file goes last, so a job that comes meanwhile finds either a
 * locked cache or none. Nothing else in the directory is touched.
 */
#include "tier/ssd_sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "format/hash.h"
#include "io/aio.h"
#include "io/lock.h"
#include "tier/ssd.h"

#define CACHES_MAX 256u

struct cache {
    char name[STI_SSD_NAME_SIZE];
    uint64_t n_bytes; /* on the disk */
    int64_t opened_s;
    uint32_t opened_ns;
};

struct caches {
    char own[STI_SSD_NAME_SIZE];
    uint64_t own_bytes;
    char beside[STI_SSD_SLOTS_MAX][STI_SSD_NAME_SIZE]; /* of this data set, own among them */
    uint64_t beside_bytes;
    uint32_t n;
    struct cache found[CACHES_MAX];
};

uint64_t
sti_ssd_slot_id(uint64_t dataset_id, uint32_t slot)
{
    return slot == 0 ? dataset_id : sti_hash_u64(sti_hash_u64(STI_HASH_START, dataset_id), slot);
}

void
sti_ssd_name(char *name, uint64_t dataset_id)
{
    (void)snprintf(name, STI_SSD_NAME_SIZE, "stoker-%016" PRIx64, dataset_id); /* 23 fit */
}

static bool
is_name(const char *name)
{
    return strlen(name) == 23 && strncmp(name, "stoker-", 7) == 0 &&
           strspn(name + 7, "0123456789abcdef") == 16;
}

static int
look(int root_fd, const char *name, const char *file, struct statx *ret_found)
{
    char path[STI_SSD_NAME_SIZE + 16];
    struct sti_aio_op op = {.kind = STI_AIO_STATX,
                            .dir_fd = root_fd,
                            .path = path,
                            .statx = ret_found,
                            .statx_mask = STATX_BASIC_STATS};

    (void)snprintf(path, sizeof(path), "%.23s/%s", name, file); /* 32 fit */
    sti_aio_op_execute(&op);
    return op.result;
}

struct listing {
    struct caches *caches;
    int root_fd;
};

static uint64_t
cache_bytes(int root_fd, const char *name)
{
    struct statx found;
    uint64_t n_blocks = 0;

    if (look(root_fd, name, "data", &found) == 0)
        n_blocks += found.stx_blocks;
    if (look(root_fd, name, "catalog", &found) == 0)
        n_blocks += found.stx_blocks;
    return n_blocks * 512;
}

static int
on_name(void *context, const char *name, unsigned char d_type)
{
    struct listing *listing = context;
    struct caches *caches = listing->caches;
    struct statx found;

    (void)d_type;
    if (!is_name(name) || caches->n == CACHES_MAX ||
        look(listing->root_fd, name, "lock", &found) < 0)
        return 0;
    if (strcmp(name, caches->own) == 0) {
        caches->own_bytes = cache_bytes(listing->root_fd, name);
        return 0;
    }
    for (uint32_t slot = 0; slot < STI_SSD_SLOTS_MAX; slot++)
        if (strcmp(name, caches->beside[slot]) == 0) {
            caches->beside_bytes += cache_bytes(listing->root_fd, name);
            return 0;
        }
    struct cache *cache = &caches->found[caches->n++];
    memcpy(cache->name, name, 24);
    cache->n_bytes = cache_bytes(listing->root_fd, name);
    cache->opened_s = found.stx_mtime.tv_sec;
    cache->opened_ns = found.stx_mtime.tv_nsec;
    return 0;
}

static int
compare_age(const void *a, const void *b)
{
    const struct cache *one = a;
    const struct cache *other = b;

    if (one->opened_s != other->opened_s)
        return one->opened_s < other->opened_s ? -1 : 1;
    if (one->opened_ns != other->opened_ns)
        return one->opened_ns < other->opened_ns ? -1 : 1;
    return strcmp(one->name, other->name);
}

static void
unlink_in(int root_fd, const char *name, const char *file)
{
    char path[STI_SSD_NAME_SIZE + 16];
    struct sti_aio_op op = {.kind = STI_AIO_UNLINK, .dir_fd = root_fd, .path = path};

    if (file) {
        (void)snprintf(path, sizeof(path), "%.23s/%s", name, file); /* 32 fit */
    } else {
        memcpy(path, name, 24);
        op.unlink_flags = AT_REMOVEDIR;
    }
    sti_aio_op_execute(&op); /* what cannot be removed stays and is counted by the next job */
}

/* Whether a lock file that we hold begins with our text. */
static bool
is_ours(int lock_fd)
{
    char text[sizeof(STI_SSD_LOCK_TEXT)] = {0};
    struct sti_aio_op op = {
        .kind = STI_AIO_READ, .fd = lock_fd, .bytes = text, .n_bytes = sizeof(text)};

    sti_aio_op_execute(&op);
    return op.result == (int32_t)sizeof(text) && memcmp(text, STI_SSD_LOCK_TEXT, sizeof(text)) == 0;
}

/* Returns whether the cache is gone. */
static bool
remove_cache(int root_fd, const char *name)
{
    char path[STI_SSD_NAME_SIZE + 16];
    int lock_fd;

    (void)snprintf(path, sizeof(path), "%.23s/lock", name); /* 28 fit */
    if (sti_lock_take(root_fd, path, &lock_fd) < 0)
        return false;
    bool is_removable = is_ours(lock_fd);
    if (is_removable) {
        unlink_in(root_fd, name, "catalog");
        unlink_in(root_fd, name, "data");
        unlink_in(root_fd, name, "lock");
        unlink_in(root_fd, name, NULL);
    }
    struct sti_aio_op op = {.kind = STI_AIO_CLOSE, .fd = lock_fd};
    sti_aio_op_execute(&op); /* gives the lock up */
    return is_removable;
}

/* What the cache may take now. */
static uint64_t
room_of(const struct caches *caches, int root_fd, uint64_t capacity_bytes, uint64_t others_bytes)
{
    uint64_t room_bytes = capacity_bytes > others_bytes ? capacity_bytes - others_bytes : 0;
    uint64_t free_bytes;

    if (sti_free_bytes(root_fd, &free_bytes) == 0 && free_bytes < UINT64_MAX - caches->own_bytes &&
        room_bytes > free_bytes + caches->own_bytes)
        room_bytes = free_bytes + caches->own_bytes;
    return room_bytes;
}

uint64_t
sti_ssd_sweep(int root_fd, const struct sti_ssd_dir_opts *opts)
{
    uint64_t capacity_bytes = opts->capacity_bytes, want_bytes = opts->want_bytes;
    struct caches *caches = sti_mem_new(1, sizeof(*caches));
    uint64_t others_bytes = 0;

    if (!caches)
        return want_bytes; /* the disk says when it is full */
    sti_ssd_name(caches->own, sti_ssd_slot_id(opts->dataset_id, opts->slot));
    for (uint32_t slot = 0; slot < STI_SSD_SLOTS_MAX; slot++)
        sti_ssd_name(caches->beside[slot], sti_ssd_slot_id(opts->dataset_id, slot));
    struct listing listing = {.caches = caches, .root_fd = root_fd};
    struct sti_aio_op op = {.kind = STI_AIO_LIST,
                            .dir_fd = root_fd,
                            .path = ".",
                            .list_fn = on_name,
                            .list_context = &listing};
    sti_aio_op_execute(&op); /* what cannot be listed is not counted */
    if (!opts->is_apart)
        others_bytes = caches->beside_bytes;
    qsort(caches->found, caches->n, sizeof(caches->found[0]), compare_age);
    for (uint32_t at = 0; at < caches->n; at++)
        others_bytes += caches->found[at].n_bytes;
    uint64_t room_bytes = room_of(caches, root_fd, capacity_bytes, others_bytes);
    for (uint32_t at = 0; at < caches->n && room_bytes < want_bytes; at++) {
        if (!remove_cache(root_fd, caches->found[at].name))
            continue;
        others_bytes -= caches->found[at].n_bytes;
        room_bytes = room_of(caches, root_fd, capacity_bytes, others_bytes);
    }
    sti_mem_free(caches);
    return room_bytes < want_bytes ? room_bytes : want_bytes;
}
