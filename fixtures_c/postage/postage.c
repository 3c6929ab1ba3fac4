/* postage: what it costs to send parcels.
 *
 *     postage [-e] [-i] [-z ZONE] GRAMS...
 *
 * -e sends them express, -i insures them; zone 1 is the own country, 2 the continent, 3 the rest of the world.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ZONES = 3, MAX_GRAMS = 20000 };

struct tariff {
    int upto_grams;
    int cents[ZONES];
};

static const struct tariff tariffs[] = {
    {500, {180, 420, 700}},
    {2000, {390, 850, 1600}},
    {5000, {590, 1290, 2900}},
    {MAX_GRAMS, {990, 2400, 5200}},
};

struct shipment {
    int express;
    int insured;
    int zone;
    int parcels;
    int cents;
};

static int base_price(int grams, int zone)
{
    const struct tariff *tariff = tariffs;

    while (grams > tariff->upto_grams)
        tariff++;
    return tariff->cents[zone - 1];
}

/* Express costs half the price more, insurance a tenth but at least 150 cents. */
static int price_of(const struct shipment *shipment, int grams)
{
    int base = base_price(grams, shipment->zone);
    int extra = 0;

    if (shipment->express)
        extra = base / 2;
    if (shipment->insured) {
        extra = base / 10;
        if (extra < 150)
            extra = 150;
    }
    return base + extra;
}

/* Sets the shipment's options; returns the index of the first weight, or -1 when the options are wrong. */
static int read_options(struct shipment *shipment, int argc, char *argv[])
{
    int i;

    for (i = 1; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-e") == 0)
            shipment->express = 1;
        else if (strcmp(argv[i], "-i") == 0)
            shipment->insured = 1;
        else if (strcmp(argv[i], "-z") == 0 && i + 1 < argc)
            shipment->zone = atoi(argv[++i]);
        else
            return -1;
    }
    if (shipment->zone < 1 || shipment->zone > ZONES)
        return -1;
    return i;
}

static int add_parcel(struct shipment *shipment, int grams)
{
    int price;

    if (grams <= 0 || grams > MAX_GRAMS)
        return -1;
    price = price_of(shipment, grams);
    printf("%6d g %4d.%02d\n", grams, price / 100, price % 100);
    shipment->parcels++;
    shipment->cents += price;
    return 0;
}

int main(int argc, char *argv[])
{
    struct shipment shipment = {.zone = 1};
    int i = read_options(&shipment, argc, argv);

    if (i < 0 || i == argc) {
        fprintf(stderr, "usage: postage [-e] [-i] [-z ZONE] GRAMS...\n");
        return 2;
    }
    for (; i < argc; i++) {
        if (add_parcel(&shipment, atoi(argv[i])) != 0) {
            fprintf(stderr, "postage: cannot be sent: %s g\n", argv[i]);
            return 1;
        }
    }
    printf("%6d   %4d.%02d\n", shipment.parcels, shipment.cents / 100, shipment.cents % 100);
    return 0;
}
