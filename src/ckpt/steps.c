/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/names.h"

int
sti_steps_add(struct sti_steps *steps, const uint64_t *more, uint32_t n)
{
    if (n > UINT32_MAX / 2 - steps->n)
        return -ENOMEM;
    if (n > steps->capacity - steps->n) {
        uint32_t capacity = steps->n + n < 32 ? 64 : 2 * (steps->n + n);
        uint64_t *grown = sti_mem_resize(steps->list, capacity, sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        steps->list = grown;
        steps->capacity = capacity;
    }
    if (n > 0)
        memcpy(steps->list + steps->n, more, n * sizeof(*more));
    steps->n += n;
    return 0;
}

int
sti_steps_note(void *context, const char *name, unsigned char d_type)
{
    char id[STI_ID_SIZE];
    uint64_t step;

    (void)d_type; /* a file of that name has no manifest in it: whoever reads that finds out */
    return sti_name_parse(name, &step, id) == STI_NAME_STEP ? sti_steps_add(context, &step, 1) : 0;
}

static int
newest_first(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;

    return *a > *b ? -1 : *a < *b;
}

void
sti_steps_sort(struct sti_steps *steps)
{
    uint32_t n = 0;

    if (steps->n == 0)
        return;
    qsort(steps->list, steps->n, sizeof(steps->list[0]), newest_first);
    for (uint32_t at = 0; at < steps->n; at++)
        if (n == 0 || steps->list[n - 1] != steps->list[at])
            steps->list[n++] = steps->list[at];
    steps->n = n;
}

void
sti_steps_fini(struct sti_steps *steps)
{
    sti_mem_free(steps->list);
    *steps = (struct sti_steps){0};
}
