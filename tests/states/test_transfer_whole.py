"""Whole states of many kinds, moved into the other run: either becomes the other."""

from __future__ import annotations

from two_runs import check_both_ways

from pytest_causechain.states.outside import join_lines


class TestMemory:
    def test_of_generic_containers(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            struct cell { void *data; struct cell *next; };
            struct person { char *name; struct person *boss; int age; };
            int main(int argc, char **argv)
            {
                struct cell *list = NULL;
                void *pad = malloc(atoi(argv[1]));
                int n;
                for (n = 2; n < argc; n++) {
                    struct cell *cell = malloc(sizeof *cell);
                    struct person *person = calloc(1, sizeof *person);
                    person->name = strdup(argv[n]);
                    person->age = strlen(argv[n]);
                    person->boss = list ? list->data : NULL;
                    cell->data = person;
                    cell->next = list;
                    list = cell;
                }
                pad = NULL; argv = NULL; argc = 0;
                for (; list; list = list->next) { /* here */
                    struct person *person = list->data;
                    printf("%s %d %s\n", person->name, person->age, person->boss ? person->boss->name : "-");
                }
                return 0;
            }
        """
        check_both_ways(
            open_runs(source, ["10", "joe", "jim", "ann"], ["300", "alexandrina", "a name of many letters"])
        )

    def test_of_what_lies_at_the_same_address_but_does_not_fit(self, open_runs):
        """Both runs have the same addresses in a union and in memory without a type, but not the same texts there."""
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            struct { int tag; union { char *text; long number; } as; } value;
            void *any;
            int main(int argc, char **argv)
            {
                any = malloc(16);
                *(char **) any = strdup(argv[1]);
                value.as.text = strdup(argv[1]);
                argv = NULL;
                printf("%s %s\n", *(char **) any, value.as.text); /* here */
                return 0;
            }
        """
        check_both_ways(open_runs(source, ["short"], ["a text of more than twenty-four bytes"]))
        check_both_ways(open_runs(source, ["a text of more than twenty-four bytes"], ["short"]))

    def test_of_arrays_at_the_end_of_structs(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            struct row { int count; char *cells[]; };
            struct text { size_t length; char data[1]; };
            struct numbers { short count; int at[0]; };
            int main(int argc, char **argv)
            {
                struct row *row = malloc(sizeof *row + (argc - 1) * sizeof(char *));
                struct numbers *numbers = malloc(sizeof *numbers + argc * sizeof(int));
                struct text *text;
                int n, length = 0;
                for (n = 1; n < argc; n++) {
                    row->cells[n - 1] = strdup(argv[n]);
                    length += strlen(argv[n]);
                    numbers->at[n - 1] = length;
                }
                row->count = numbers->count = argc - 1;
                text = calloc(1, sizeof *text + length);
                text->length = length;
                for (n = 1; n < argc; n++) strcat(text->data, argv[n]);
                argc = length = n = 0; argv = NULL;
                printf("%zu %s\n", text->length, text->data); /* here */
                for (n = 0; n < row->count; n++) printf("%s ", row->cells[n]);
                for (n = 0; n < numbers->count; n++) printf("%d ", numbers->at[n]);
                return 0;
            }
        """
        check_both_ways(open_runs(source, ["a", "bc", "def", "x"], ["long word", "another"]))
        check_both_ways(open_runs(source, ["word"], ["a", "bc", "def", "much more than there was before", "e"]))

    def test_of_large_blocks_and_pointers_into_them(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            long *large, *inside, *end; int *small, *past;
            int main(int argc, char **argv)
            {
                int n, by = atoi(argv[1]);
                large = calloc(30000, sizeof *large);
                for (n = 0; n < 30000; n += 1000) large[n] = n / by;
                inside = large + 1000 * by; end = large + 30000;
                small = malloc(6 * sizeof *small);
                for (n = 0; n < 6; n++) small[n] = n * by;
                past = small + 6;
                argv = NULL; argc = by = 0;
                for (n = 0; n < 30; n++) printf("%ld ", large[1000 * n]); /* here */
                printf("%ld %ld %d %d\n", *inside, (long) (end - inside), past[-1], *small);
                return 0;
            }
        """
        check_both_ways(open_runs(source, ["3"], ["7"]))

    def test_of_freed_blocks_leaves_the_allocator_alone(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            struct entry { long a, b, c, d; struct entry *next; };
            struct entry *gone, *kept; char *text; FILE *file;
            int main(int argc, char **argv)
            {
                int n, by = atoi(argv[1]);
                struct entry *some[20] = { 0 };
                char *pad = malloc(by * 100);
                text = malloc(2000); strcpy(text + 100, argv[1]);
                kept = calloc(1, sizeof *kept);
                gone = calloc(1, sizeof *gone); gone->c = by; gone->a = by; gone->next = kept;
                for (n = 0; n < by; n++) some[n] = calloc(1, sizeof *kept);
                for (n = 0; n < by; n++) free(some[n]);
                free(text); free(gone);
                file = fopen("/dev/null", "w");
                argv = NULL; argc = 0; pad = NULL; memset(some, 0, sizeof some);
                printf("%ld %s\n", gone->c, text + 100); /* here */
                fprintf(file, "x"); fflush(file);
                for (n = 0; n < 20; n++) some[n] = calloc(n < 10 ? 1 : 10, sizeof *kept);
                for (n = 0; n < 20; n++) free(some[n]);
                pad = malloc(5000); memset(pad, 1, 5000); free(pad);
                fclose(file);
                printf("%d\n", by);
                return 0;
            }
        """
        check_both_ways(open_runs(source, ["3"], ["6"]))
        check_both_ways(open_runs(source, ["12"], ["5"]))

    def test_of_arguments_and_environment(self, open_runs):
        source = r"""
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            int main(int argc, char **argv, char **environment)
            {
                char **rest = argv + 1, *option = argv[1] + 2, **variable;
                printf("%d %s %s\n", argc, option, rest[0]); /* here */
                for (; *rest; rest++) puts(*rest);
                for (variable = environment; *variable; variable++)
                    if (!strncmp(*variable, "TEST_", 5)) puts(*variable);
                return 0;
            }
        """
        environment = ((("TEST_A", "1"),), (("TEST_A", "a long value, longer than the other one"), ("TEST_B", "2")))
        runs = open_runs(source, ["-nvalue", "x"], ["-n", "much longer", "y"], environment=environment)
        check_both_ways(runs)

    def test_of_function_pointers(self, open_runs):
        source = r"""
            #include <stdio.h>
            static int twice(int x) { return 2 * x; }
            static int thrice(int x) { return 3 * x; }
            int (*apply)(int), (*table[2])(int);
            int main(int argc, char **argv)
            {
                apply = argc > 1 ? thrice : twice;
                table[1] = argc > 1 ? NULL : thrice;
                printf("%d %d\n", apply(5), table[1] ? table[1](5) : 0); /* here */
                return 0;
            }
        """
        check_both_ways(open_runs(source, [], ["x"]))


class TestCxx:
    def test_of_standard_containers(self, open_runs):
        source = r"""
            #include <iostream>
            #include <map>
            #include <memory>
            #include <string>
            #include <vector>
            struct Base { int id; virtual ~Base() {} virtual int weight() { return id; } };
            struct Derived : Base { std::string name; int weight() override { return 2 * id; } };
            static void show(const std::string &text, const Derived *derived)
            {
                std::cout << text << " " << derived->name << derived->id << "\n"; /* here */
            }
            extern "C" void run(int argc, char **argv)
            {
                int number = std::stoi(argv[1]);
                std::string text = argv[2];
                std::vector<int> numbers;
                std::map<std::string, int> counts;
                Derived derived;
                for (int i = 0; i < number; i++) numbers.push_back(i * number);
                counts["fixed"] = number;
                counts[text] = 1;
                derived.id = number;
                derived.name = text + text;
                std::unique_ptr<Base> base(new Derived(derived));
                show(text, &derived);
                for (int each : numbers) std::cout << each << " ";
                for (auto &count : counts) std::cout << count.first << "=" << count.second << " ";
                std::cout << base->weight() << " " << number << std::endl;
            }
        """
        check_both_ways(open_runs(source, ["3", "ab"], ["2", "cd"]))
        check_both_ways(open_runs(source, ["3", "ab"], ["4", "a text that does not fit into its object"]))


class TestInput:
    SOURCE = r"""
        #include <stdio.h>
        int main(void)
        {
            char line[100];
            int n = 0;
            while (n < 2 && fgets(line, sizeof line, stdin)) n++;
            n = 0; line[0] = 0; /* here */
            while (fgets(line, sizeof line, stdin)) printf("%d:%s", n++, line);
            return 0;
        }
    """
    ONE, OTHER = b"a\nb\nc\nd\ne\n", b"a\nb\nx\nd\ny\nz"

    def test_unread_lines_both_ways(self, open_runs):
        check_both_ways(open_runs(self.SOURCE, stdin=(self.ONE, self.OTHER)))

    def test_input_that_one_run_has_read_to_its_end(self, open_runs):
        check_both_ways(open_runs(self.SOURCE, stdin=(b"a\n", self.OTHER)))
        check_both_ways(open_runs(self.SOURCE, stdin=(self.OTHER, b"a\n")))

    def test_some_edits(self, open_runs):
        runs = open_runs(self.SOURCE, stdin=(self.ONE, self.OTHER))
        assert [delta.name for delta in runs.deltas] == ["stdin line 3", "stdin line 5", "stdin line 6"]
        third, fifth, sixth = runs.deltas
        assert runs.alter_passing([third]).stdout == b"0:x\n1:d\n2:e\n"
        assert runs.alter_passing([fifth]).stdout == b"0:c\n1:d\n2:y\n"
        assert runs.alter_passing([sixth]).stdout == b"0:c\n1:d\n2:e\n3:z"
        assert runs.alter_failing([third, sixth]).stdout == b"0:c\n1:d\n2:y\n"

    def test_last_line_without_an_end_gets_one_where_others_follow(self):
        assert join_lines([(b"a\n",), (b"b",), (), (b"c",)]) == b"a\nb\nc"
        assert join_lines([(b"a\n",), (b"b",), ()]) == b"a\nb"
        assert join_lines([]) == b""
