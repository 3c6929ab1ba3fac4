/* sample: print the numbers given as arguments in ascending order. */

#include <stdio.h>
#include <stdlib.h>

/* Insertion sort over elements h apart, for ever smaller gaps h = ..., 13, 4, 1. */
static void shell_sort(long a[], int size)
{
    int h = 1;
    int i;
    int j;
    long v;

    while (h < size)
        h = 3 * h + 1;

    while (h > 1) {
        h /= 3;
        for (i = h; i < size; i++) {
            v = a[i];
            j = i;
            while (j >= h && a[j - h] > v) {
                a[j] = a[j - h];
                j -= h;
            }
            a[j] = v;
        }
    }
}

int main(int argc, char *argv[])
{
    long *a;
    int i;

    if (argc < 2) {
        fprintf(stderr, "usage: sample NUMBER...\n");
        return 2;
    }

    a = malloc((size_t)(argc - 1) * sizeof *a);
    if (a == NULL)
        return 2;
    for (i = 0; i < argc - 1; i++)
        a[i] = strtol(argv[i + 1], NULL, 10);

    shell_sort(a, argc);

    for (i = 0; i < argc - 1; i++)
        printf("%ld ", a[i]);
    printf("\n");

    free(a);
    return 0;
}
