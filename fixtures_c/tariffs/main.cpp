// tariffs: bills of a utility; obeys commands on standard input, one per line:
//
//     flat NAME CENTS          stepped NAME FIRST CENTS OTHER      replace NAME CENTS
//     sign CUSTOMER NAME       read CUSTOMER METER                 raise NAME CENTS        bill CUSTOMER

#include "tariffs.hpp"

#include <cstdlib>
#include <iostream>
#include <sstream>

static std::vector<std::string> split(const std::string &line)
{
    std::istringstream stream(line);
    std::vector<std::string> words;
    std::string word;

    while (stream >> word)
        words.push_back(word);
    return words;
}

static int number(const std::string &word)
{
    return std::atoi(word.c_str());
}

static bool obey(Utility &utility, const std::vector<std::string> &words)
{
    const std::string verb = words.empty() ? "" : words[0];

    if (verb == "flat" && words.size() == 3)
        utility.offer(words[1], std::make_shared<Flat>(number(words[2])));
    else if (verb == "stepped" && words.size() == 5)
        utility.offer(words[1],
                      std::make_shared<Stepped>(number(words[2]), number(words[3]), utility.find(words[4])));
    else if (verb == "replace" && words.size() == 3)
        utility.replace(words[1], std::make_shared<Flat>(number(words[2])));
    else if (verb == "sign" && words.size() == 3)
        utility.sign(words[1], words[2]).readings.push_back(0);
    else if (verb == "read" && words.size() == 3)
        utility.customer(words[1]).readings.push_back(number(words[2]));
    else if (verb == "raise" && words.size() == 3)
        utility.find(words[1])->raise(number(words[2]));
    else if (verb == "bill" && words.size() == 2)
        std::cout << words[1] << " pays " << utility.bill(words[1]) << '\n';
    else
        return false;
    return true;
}

int main()
{
    Utility utility;
    std::string line;

    while (std::getline(std::cin, line)) {
        if (!obey(utility, split(line))) {
            std::cerr << "tariffs: cannot obey: " << line << '\n';
            return 1;
        }
    }
    return 0;
}
