/* SPDX-License-Identifier: Apache-2.0 */
/* What one node has of a checkpoint whose parts lie on several. */
#include "ckpt_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "args.h"

#define PARTS_MAX 65536u

/* Which parts of a checkpoint are here. */
struct parts {
    stk_ckpt_part list[PARTS_MAX];
    uint32_t n;
    uint32_t total;
    uint32_t here;
    uint32_t bad;
    uint64_t bytes; /* of those that are here */
};

/* Looks at all parts of a step. Returns 0, or what is wrong with the first that is here, or what
 * listing gives. */
static int
find_parts(stk_ckpt *ckpt, uint64_t step, uint32_t flags, struct parts *parts, stk_error *err)
{
    int n = stk_ckpt_parts(ckpt, step, flags, parts->list, PARTS_MAX, &parts->total, err);
    int rc = 0;

    parts->n = parts->here = parts->bad = 0;
    parts->bytes = 0;
    if (n < 0)
        return n;
    parts->n = (uint32_t)n;
    for (uint32_t at = 0; at < parts->n; at++) {
        const stk_ckpt_part *part = &parts->list[at];

        if (part->state == -ENOENT)
            continue;
        parts->here++;
        parts->bytes += part->bytes;
        parts->bad += part->state < 0;
        if (part->state < 0 && rc == 0)
            rc = part->state;
    }
    return rc;
}

/* "4 of 9 parts, of writers 0 1 and the header": those that are here. */
static void
print_parts(const struct parts *parts, uint32_t world)
{
    uint32_t last = UINT32_MAX;
    uint32_t n_coming = 0;
    bool has_header = false;

    (void)printf("%" PRIu32 " of %" PRIu32 " parts here", parts->here, parts->total);
    for (uint32_t at = 0; at < parts->n; at++) {
        const stk_ckpt_part *part = &parts->list[at];

        n_coming += (part->flags & STK_PART_COMING) != 0;
        if (part->state == -ENOENT)
            continue;
        if (part->writer >= world)
            has_header = true;
        else if (part->writer != last) /* one writer's are one behind the other */
            (void)printf("%s %" PRIu32, last == UINT32_MAX ? ", of writers" : "", part->writer);
        last = part->writer < world ? part->writer : last;
    }
    (void)printf("%s", has_header ? last == UINT32_MAX ? ", the header" : " and the header" : "");
    if (n_coming > 0)
        (void)printf(", %" PRIu32 " copies unfinished", n_coming);
    if (parts->total > parts->n)
        (void)printf(" (of the first %" PRIu32 ")", parts->n);
}

void
ckpt_parts_print(stk_ckpt *ckpt, const stk_ckpt_info *info, bool is_node_local)
{
    static struct parts parts; /* too much for a stack */
    stk_error err;
    int state = info->state;

    if (state == 0 && !is_node_local)
        return;
    int rc = find_parts(ckpt, info->step, 0, &parts, &err);
    bool is_known = parts.n > 0;
    if (is_node_local && is_known)
        state = rc;
    if (state != 0)
        (void)printf("  NOT WHOLE: %s", stk_strerror(state));
    if (is_known) {
        (void)printf("%s", state != 0 ? "; " : ", ");
        print_parts(&parts, info->world);
    }
}

int
ckpt_parts_verify(const char *command, stk_ckpt *ckpt, const stk_ckpt_info *info)
{
    static struct parts parts; /* too much for a stack */
    stk_error err;
    int rc = find_parts(ckpt, info->step, STK_PARTS_VERIFY, &parts, &err);

    if (parts.n > 0) {
        (void)printf("step %" PRIu64 ": ", info->step);
        print_parts(&parts, info->world);
        (void)printf(": %" PRIu64 " bytes", parts.bytes);
        if (rc == 0)
            (void)printf(" are whole\n");
        else
            (void)printf(", %" PRIu32 " part%s damaged\n", parts.bad,
                         parts.bad == 1 ? " is" : "s are");
    }
    return rc < 0 ? cli_refused(command, "the checkpoint is damaged", rc, &err) : CLI_OK;
}
