/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From where a sample is read, of the places that have it. The origin is the scarce
 * thing, so it serves only what nobody holds; among the others the quickest one is taken,
 * and where two are equally quick the one that troubles fewer: the own RAM, the own SSD,
 * a peer. Pure.
 */
#ifndef STI_POLICY_CHOOSE_H
#define STI_POLICY_CHOOSE_H

#include <stdint.h>

#include "policy/cost.h"

enum sti_source {
    STI_SOURCE_RAM,
    STI_SOURCE_SSD,
    STI_SOURCE_PEER_RAM,
    STI_SOURCE_PEER_SSD,
    STI_SOURCE_ORIGIN,
    STI_SOURCES,
};

#define STI_SOURCE_BIT(source) (UINT32_C(1) << (source))

/* What a read of n_bytes takes from each source; set once per size or once for a mean
 * size. */
struct sti_source_seconds {
    double of[STI_SOURCES];
};

/* available: a STI_SOURCE_BIT for each place that has the sample; the origin always
 * has. */
enum sti_source
sti_choose_source(const struct sti_source_seconds *seconds, uint32_t available);

/* The owner of a sample without any table: the rank that reads it first, of those in the
 * run's first epoch; computed from the position at which the epoch's order has it. Where
 * samples are read rarely by each rank (epochs / ranks is small) a table of counts gains
 * little over it. */
uint32_t
sti_owner_first_reader(uint64_t position, uint32_t n_ranks);

#endif
