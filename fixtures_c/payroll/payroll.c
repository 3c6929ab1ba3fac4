/* payroll: what employees are paid this month. Reads lines of standard input:
 *
 *     NAME HOURS CENTS-PER-HOUR ALLOWANCE-IN-CENTS
 *
 * The allowance is free of tax. Contributions are due on all that was earned, up to a limit.
 */

#include <stdio.h>
#include <string.h>

enum {
    REGULAR_HOURS = 160,
    CONTRIBUTION_LIMIT = 500000,
    CONTRIBUTION_PERCENT = 20,
};

struct bracket {
    long above; /* cents */
    int percent;
};

/* What is earned above the amount is taxed at this rate, up to the next one. */
static const struct bracket brackets[] = {
    {100000, 15},
    {250000, 25},
    {600000, 42},
};

struct payslip {
    char name[24];
    long gross;
    long taxable;
    long tax;
    long contributions;
    long net;
};

/* Overtime is paid one and a half times. */
static long earnings(int hours, long cents)
{
    int overtime = hours > REGULAR_HOURS ? hours - REGULAR_HOURS : 0;

    return (hours - overtime) * cents + overtime * cents * 3 / 2;
}

static long income_tax(long income)
{
    int count = sizeof brackets / sizeof brackets[0];
    long tax = 0;
    int i;

    for (i = 0; i < count && income > brackets[i].above; i++) {
        long top = income;

        if (i + 1 < count && income > brackets[i + 1].above)
            top = brackets[i + 1].above;
        tax += (top - brackets[i].above) * brackets[i].percent / 100;
    }
    return tax;
}

static long contributions_on(long gross)
{
    if (gross > CONTRIBUTION_LIMIT)
        gross = CONTRIBUTION_LIMIT;
    return gross * CONTRIBUTION_PERCENT / 100;
}

static void settle(struct payslip *payslip, int hours, long cents, long allowance)
{
    long gross = earnings(hours, cents);
    long taxable = allowance < gross ? gross - allowance : 0;

    payslip->gross = gross;
    payslip->taxable = taxable;
    payslip->tax = income_tax(gross);
    payslip->contributions = contributions_on(gross);
    payslip->net = gross - payslip->tax - payslip->contributions;
}

static void print_cents(const char *what, long cents)
{
    printf("  %s %ld.%02ld", what, cents / 100, cents % 100);
}

static void print_payslip(const struct payslip *payslip)
{
    printf("%s:", payslip->name);
    print_cents("gross", payslip->gross);
    print_cents("taxable", payslip->taxable);
    print_cents("tax", payslip->tax);
    print_cents("contributions", payslip->contributions);
    print_cents("net", payslip->net);
    printf("\n");
}

int main(void)
{
    struct payslip payslip;
    char line[100];
    long cents;
    long allowance;
    int hours;

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "%23s %d %ld %ld", payslip.name, &hours, &cents, &allowance) != 4) {
            fprintf(stderr, "payroll: cannot read: %s", line);
            return 1;
        }
        settle(&payslip, hours, cents, allowance);
        print_payslip(&payslip);
    }
    return 0;
}
