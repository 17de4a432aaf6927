/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names on disk. In the directory a checkpoint is step-N, holding its manifest; parts lie
 * in step-N.ID of each root. A name is never used twice: ID is of one save of one writer
 * set.
 */
#ifndef STI_CKPT_NAMES_H
#define STI_CKPT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#define STI_NAME_SIZE 112 /* of any of these names, with its NUL */
#define STI_ID_SIZE 40    /* 16 hexadecimal digits, a hyphen, at most 16 more, NUL */
#define STI_MANIFEST_NAME "manifest.json"
#define STI_PULL_SUFFIX ".pull" /* of a part that is being copied from another node */

enum sti_name_kind {
    STI_NAME_OTHER,  /* nothing of ours */
    STI_NAME_STEP,   /* step-N: a checkpoint */
    STI_NAME_PARTS,  /* step-N.ID: parts of one, or what a dead writer left */
    STI_NAME_COMMIT, /* step-N.ID.tmp: a manifest being written */
    STI_NAME_GONE,   /* step-N.ID.gone: a checkpoint being removed */
};

/* The id of the save number serial of a session. */
void
sti_name_id(char id[STI_ID_SIZE], uint64_t session, uint64_t serial);

/* The name of a kind. id is not used for STI_NAME_STEP. */
void
sti_name_make(char name[STI_NAME_SIZE], enum sti_name_kind kind, uint64_t step, const char *id);

/* number: of the writer's own roots. "model.safetensors" where the checkpoint has one part,
 * which then is the whole stream. */
void
sti_name_part(char name[STI_NAME_SIZE], uint32_t writer, uint32_t number, uint32_t n_parts);

/* What a name is. Fills ret_step and id for all kinds but OTHER (id empty for STEP). */
enum sti_name_kind
sti_name_parse(const char *name, uint64_t *ret_step, char id[STI_ID_SIZE]);

/* Whether an id is of the form that sti_name_id() makes. */
bool
sti_name_is_id(const char *id);

#endif
