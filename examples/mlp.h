/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small multilayer perceptron for 28 x 28 images of ten classes: 784 inputs, 256 hidden
 * units with ReLU, 10 outputs with softmax and cross entropy, trained by gradient descent
 * with momentum. One thread. Every sum is made in one fixed order, so that the same
 * samples in the same order give the same weights, bit for bit, in every run.
 */
#ifndef EXAMPLES_MLP_H
#define EXAMPLES_MLP_H

#include <stddef.h>
#include <stdint.h>

#define MLP_PIXELS 784
#define MLP_HIDDEN 256
#define MLP_CLASSES 10
#define MLP_BATCH_MAX 512

struct mlp;

/* Makes a network with random weights drawn from seed. Returns owned, or NULL without
 * memory. */
struct mlp *
mlp_new(uint64_t seed);

/* Frees a network; NULL is allowed. */
void
mlp_free(struct mlp *net);

/*
 * The first half of a step of training: forward and backward, which leave the gradient in
 * the network and change no weight. images: count pointers to MLP_PIXELS bytes each;
 * labels: count values in 0 .. MLP_CLASSES - 1; count: 1 .. MLP_BATCH_MAX. Returns the sum
 * of the samples' losses.
 */
double
mlp_find_gradient(struct mlp *net, const uint8_t *const *images, const int64_t *labels,
                  uint32_t count);

/* The gradient that mlp_find_gradient() has left, as *ret_n numbers in the network. */
float *
mlp_get_gradient(struct mlp *net, size_t *ret_n);

/* The second half: momentum and weights are changed by the gradient. */
void
mlp_update(struct mlp *net, float rate);

#define MLP_ARRAYS 8

/* One of the arrays that a training goes on from. */
struct mlp_array {
    const char *name;
    float *values; /* in the network */
    uint64_t rows;
    uint64_t columns;
};

/* The weights and their momentum: all that changes from step to step. */
void
mlp_get_arrays(struct mlp *net, struct mlp_array arrays[MLP_ARRAYS]);

/* How many of the images the network puts into their classes. Arguments as for
 * mlp_train(). */
uint32_t
mlp_count_right(struct mlp *net, const uint8_t *const *images, const int64_t *labels,
                uint32_t count);

/* A checksum (FNV-1a, 64 bits) over every bit of every weight. */
uint64_t
mlp_checksum(const struct mlp *net);

#endif
