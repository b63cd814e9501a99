/* Runs one loop on memory given on standard input and writes the memory back: for a foreign machine under qemu-user.
   Input: int64 block of 16 words, sizes of a, b, c and the results (4 int64), then their bytes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void loop(int64_t *args);

int main(void) {
    int64_t args[16], sizes[4];
    static const int word[4] = {1, 2, 3, 8};
    void *memory[4];
    if (fread(args, 8, 16, stdin) != 16 || fread(sizes, 8, 4, stdin) != 4) return 1;
    for (int k = 0; k < 4; k++) {
        memory[k] = aligned_alloc(4096, (sizes[k] + 4095) / 4096 * 4096);
        if (!memory[k] || fread(memory[k], 1, sizes[k], stdin) != (size_t)sizes[k]) return 2;
        args[word[k]] = (int64_t)memory[k];
    }
    loop(args);
    for (int k = 0; k < 4; k++)
        if (fwrite(memory[k], 1, sizes[k], stdout) != (size_t)sizes[k]) return 3;
    return 0;
}
