/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freshness. An index is good as long as no directory that it was made from (or its one
 * file) has changed, which their times tell; no other file is looked at.
 *
 * Writing an index into a directory of its own data set changes that directory's time. So
 * for this one, its home, the names in it were noted when it was indexed (a hash, without
 * those of indexes). Once the index has its name, the home is looked at, listed, and
 * looked at again: if the names are those that were indexed and the time stood still
 * meanwhile, that time is written into the index, as its stamp. Later the stamp alone is
 * compared. Where it does not agree (another process has just put its own index there, or
 * crashed between the two) the names decide once more. Invariant: a stamp is only ever
 * written for a directory whose names have been compared at that very time. What the
 * names cannot show, a file of the home that was replaced by another of the same name, is
 * left to the check of its size when it is read.
 *
 * One thread, the aio's owner; names are hashed on a pool thread, whose hand-over orders
 * it.
 */
#include "format/fresh.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/mem.h"
#include "format/name.h"
#include "format/store.h"
#include "format/time.h"
#include "io/aio.h"

#define SLOTS 128
#define MASK (STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME)
#define NS_PER_S INT64_C(1000000000)

struct check;

struct slot {
    struct sti_aio_op op;
    struct statx found;
    struct check *check;
    struct slot *next_free;
    struct sti_index_source source;
};

struct check {
    const struct sti_index *index;
    struct sti_aio *aio;
    const struct sti_fresh_place *place;
    stk_error *err;
    struct slot *free;
    int rc;
    uint32_t n_busy;
    uint32_t next_source;
    bool has_home;
    uint64_t home_device;
    uint64_t home_inode;
};

static void
show_source(const struct sti_fresh_place *place, const struct sti_index_source *source,
            char shown[STK_ERROR_PATH_SIZE])
{
    if (source->kind == STI_INDEX_LABELS)
        (void)snprintf(shown, STK_ERROR_PATH_SIZE, "%s", place->labels_path);
    else
        (void)snprintf(shown, STK_ERROR_PATH_SIZE, "%s%s%s", place->shown, *source->path ? "/" : "",
                       source->path);
}

static void
prepare(struct sti_aio_op *op, const struct sti_fresh_place *place,
        const struct sti_index_source *source, struct statx *found)
{
    bool is_labels = source->kind == STI_INDEX_LABELS;

    memset(op, 0, sizeof(*op));
    op->kind = STI_AIO_STATX;
    op->dir_fd = is_labels ? AT_FDCWD : place->dir_fd;
    op->path = is_labels ? place->labels_path : *source->path ? source->path : ".";
    op->statx = found;
    op->statx_mask = MASK;
}

/* What is wrong with a source, if anything. */
static int
compare(const struct sti_fresh_place *place, const struct sti_index_source *source, int rc,
        const struct statx *found, stk_error *err)
{
    char shown[STK_ERROR_PATH_SIZE];
    bool is_dir = source->kind == STI_INDEX_DIRECTORY;
    int64_t mtime_ns = sti_time_ns(&found->stx_mtime);

    show_source(place, source, shown);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return sti_error_set_path(err, STK_E_STALE, shown,
                                  "gone since it was indexed" STI_INDEX_HINT);
    if (rc < 0)
        return sti_error_set_path(err, rc, shown, "cannot look at what was indexed: %s",
                                  sti_error_text(rc));
    if (is_dir ? !S_ISDIR(found->stx_mode) : !S_ISREG(found->stx_mode))
        return sti_error_set_path(err, STK_E_STALE, shown,
                                  "something else since it was indexed" STI_INDEX_HINT);
    if (!is_dir && found->stx_size != source->n_bytes)
        return sti_error_set_path(
            err, STK_E_STALE, shown,
            "changed since it was indexed: had %llu bytes, has %llu" STI_INDEX_HINT,
            (unsigned long long)source->n_bytes, (unsigned long long)found->stx_size);
    if (mtime_ns != source->mtime_ns)
        return sti_error_set_path(
            err, STK_E_STALE, shown,
            "%s changed since it was indexed: mtime was %lld.%09lld, is %lld.%09lld" STI_INDEX_HINT,
            is_dir ? "directory" : "file", (long long)(source->mtime_ns / NS_PER_S),
            (long long)(source->mtime_ns % NS_PER_S), (long long)(mtime_ns / NS_PER_S),
            (long long)(mtime_ns % NS_PER_S));
    return 0;
}

static void
on_found(struct sti_aio_op *op)
{
    struct slot *slot = op->context;
    struct check *check = slot->check;
    bool is_home = check->has_home && op->result == 0 &&
                   sti_time_device(&slot->found) == check->home_device &&
                   slot->found.stx_ino == check->home_inode;

    if (check->rc == 0 && !is_home)
        check->rc = compare(check->place, &slot->source, op->result, &slot->found, check->err);
    slot->next_free = check->free;
    check->free = slot;
    check->n_busy--;
}

static void
begin(struct check *check)
{
    struct slot *slot = check->free;

    if (sti_index_get_source(check->index, check->next_source++, &slot->source) < 0) {
        check->rc = sti_error_set_path(check->err, STK_E_CORRUPT, check->place->index_path,
                                       "the index changed while it was read");
        return;
    }
    check->free = slot->next_free;
    check->n_busy++;
    prepare(&slot->op, check->place, &slot->source, &slot->found);
    slot->op.done = on_found;
    slot->op.context = slot;
    sti_aio_submit(check->aio, &slot->op);
}

static int
check_all(struct check *check)
{
    struct slot *slots = sti_mem_new(SLOTS, sizeof(*slots));

    if (!slots)
        return sti_error_set_path(check->err, -ENOMEM, check->place->shown,
                                  "no memory to check the index");
    for (uint32_t i = 0; i < SLOTS; i++) {
        slots[i].check = check;
        slots[i].next_free = check->free;
        check->free = &slots[i];
    }
    for (;;) {
        while (check->rc == 0 && check->free && check->next_source < check->index->head.sources)
            begin(check);
        if (check->n_busy == 0)
            break;
        (void)sti_aio_wait(check->aio, UINT64_MAX); /* how many have run shows in n_busy */
    }
    sti_mem_free(slots);
    return check->rc;
}

static int
find_home(const struct sti_index *index, struct sti_aio *aio, const struct sti_fresh_place *place,
          struct sti_index_source *ret_home, struct statx *ret_found)
{
    struct sti_aio_op op;
    int rc = sti_index_get_source(index, index->head.home_source, ret_home);

    if (rc < 0)
        return rc;
    prepare(&op, place, ret_home, ret_found);
    return sti_aio_run(aio, &op);
}

int
sti_fresh_check(const struct sti_index *index, struct sti_aio *aio,
                const struct sti_fresh_place *place, stk_error *err)
{
    struct check check = {.index = index, .aio = aio, .place = place, .err = err};
    struct sti_index_source home;
    struct statx found;
    int64_t stamp_ns;

    if (index->head.home_source != STI_INDEX_NO_HOME) {
        int rc = find_home(index, aio, place, &home, &found);
        if (rc < 0)
            return compare(place, &home, rc, &found, err);
        if (!sti_index_get_stamp(index, &stamp_ns) || stamp_ns != sti_time_ns(&found.stx_mtime))
            rc = sti_fresh_settle(index, aio, place, err);
        if (rc < 0)
            return rc;
        check.has_home = true;
        check.home_device = sti_time_device(&found);
        check.home_inode = found.stx_ino;
    }
    return check_all(&check);
}

static int
add_name(void *context, const char *name, unsigned char d_type)
{
    uint64_t *sum = context;

    (void)d_type;
    if (!sti_name_is_index(name))
        *sum += sti_index_name_hash(name);
    return 0;
}

/* Notes a time in the index's file, if that still is this index and may be written; where
 * not, the names are compared again next time. */
static void
write_stamp(const struct sti_index *index, struct sti_aio *aio, const char *index_path,
            int64_t mtime_ns)
{
    unsigned char head[STI_INDEX_STAMP_AT], stamp[STI_INDEX_STAMP_BYTES];
    int fd = sti_store_open_fd(aio, AT_FDCWD, index_path, O_RDWR | O_NONBLOCK);

    if (fd < 0)
        return;
    struct sti_aio_op op = {.kind = STI_AIO_READ, .fd = fd, .bytes = head, .n_bytes = sizeof(head)};
    int32_t n = sti_aio_run(aio, &op);
    if (n == (int32_t)sizeof(head) && memcmp(head, index->image, sizeof(head)) == 0) {
        sti_index_make_stamp(stamp, mtime_ns);
        (void)sti_store_write(aio, fd, stamp, sizeof(stamp), STI_INDEX_STAMP_AT); /* see above */
    }
    sti_store_close_fd(aio, fd);
}

int
sti_fresh_settle(const struct sti_index *index, struct sti_aio *aio,
                 const struct sti_fresh_place *place, stk_error *err)
{
    char shown[STK_ERROR_PATH_SIZE];
    struct sti_index_source home;
    struct statx before, after;
    uint64_t sum = 0;

    if (index->head.home_source == STI_INDEX_NO_HOME)
        return 0;
    int rc = find_home(index, aio, place, &home, &before);
    if (rc == 0 && sti_time_is_fresh(&before.stx_mtime)) {
        sti_time_let_pass(aio);
        rc = find_home(index, aio, place, &home, &before);
    }
    show_source(place, &home, shown);
    if (rc == 0) {
        struct sti_aio_op op = {.kind = STI_AIO_LIST,
                                .dir_fd = place->dir_fd,
                                .path = *home.path ? home.path : ".",
                                .list_fn = add_name,
                                .list_context = &sum};
        rc = sti_aio_run(aio, &op);
    }
    if (rc == 0)
        rc = find_home(index, aio, place, &home, &after);
    if (rc < 0)
        return sti_error_set_path(err, rc, shown, "cannot list what was indexed: %s",
                                  sti_error_text(rc));
    if (sum != index->head.home_hash)
        return sti_error_set_path(err, STK_E_STALE, shown,
                                  "directory changed since it was indexed: it holds other names "
                                  "than then (its mtime is %lld.%09lld)" STI_INDEX_HINT,
                                  (long long)(sti_time_ns(&after.stx_mtime) / NS_PER_S),
                                  (long long)(sti_time_ns(&after.stx_mtime) % NS_PER_S));
    if (sti_time_ns(&before.stx_mtime) == sti_time_ns(&after.stx_mtime) &&
        !sti_time_is_fresh(&before.stx_mtime))
        write_stamp(index, aio, place->index_path, sti_time_ns(&after.stx_mtime));
    return 0;
}
