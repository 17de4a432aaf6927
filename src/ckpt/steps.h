/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of which there are checkpoints: a list that is collected from directories. */
#ifndef STI_CKPT_STEPS_H
#define STI_CKPT_STEPS_H

#include <stdint.h>

/* All zero is empty. */
struct sti_steps {
    uint64_t *list;
    uint32_t n;
    uint32_t capacity;
};

/* An entry of a directory, as STI_AIO_LIST gives them; context: the steps. What is not named as a
 * checkpoint is passed over. Errors: -ENOMEM. */
int
sti_steps_note(void *context, const char *name, unsigned char d_type);

/* Errors: -ENOMEM. */
int
sti_steps_add(struct sti_steps *steps, const uint64_t *more, uint32_t n);

/* Newest first, each once. */
void
sti_steps_sort(struct sti_steps *steps);

void
sti_steps_fini(struct sti_steps *steps);

#endif
