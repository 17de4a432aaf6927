/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Touches memory and gives it back: ballast MIB. On a virtual machine whose free memory
 * is taken back by the host, the first touch of a page costs many times what a page costs
 * that has just been free. Run before every run of every contender, it gives all of them
 * the same fresh pages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int
main(int argc, char **argv)
{
    const size_t n_bytes = (argc == 2 ? strtoul(argv[1], NULL, 10) : 0) << 20;
    volatile char *memory;

    if (!n_bytes) {
        fprintf(stderr, "usage: ballast MIB\n");
        return 2;
    }
    memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("ballast");
        return 1;
    }
    for (size_t k = 0; k < n_bytes; k += 4096)
        memory[k] = 1;
    return 0; /* the exit gives it back */
}
