// library: obeys commands on standard input, one per line:
//
//     add SIGNATURE COPIES TITLE...    borrow READER SIGNATURE    return READER SIGNATURE
//     leave READER                     find WORD                  list

#include "catalogue.hpp"

#include <iostream>
#include <sstream>

namespace {

using library::Catalogue;

std::string rest_of(std::istringstream &words)
{
    std::string text;

    std::getline(words >> std::ws, text);
    return text;
}

void list(const Catalogue &catalogue)
{
    for (const auto &[signature, book] : catalogue.books())
        std::cout << signature << ": " << book.copies << " in, " << book.waiting.size() << " waiting\n";
}

void lend(Catalogue &catalogue, const std::string &reader, const std::string &signature)
{
    if (catalogue.borrow(reader, signature))
        std::cout << reader << " has " << signature << '\n';
    else
        std::cout << reader << " waits\n";
}

void take_back(Catalogue &catalogue, const std::string &reader, const std::string &signature)
{
    const std::optional<std::string> next = catalogue.give_back(reader, signature);

    if (next)
        std::cout << *next << " has " << signature << '\n';
}

bool obey(Catalogue &catalogue, const std::string &line)
{
    std::istringstream words(line);
    std::string verb;
    std::string name;
    std::string signature;
    int copies = 0;

    words >> verb;
    if (verb == "list") {
        list(catalogue);
    } else if (verb == "add" && words >> signature >> copies) {
        catalogue.add(signature, rest_of(words), copies);
    } else if (verb == "borrow" && words >> name >> signature) {
        lend(catalogue, name, signature);
    } else if (verb == "return" && words >> name >> signature) {
        take_back(catalogue, name, signature);
    } else if (verb == "leave" && words >> name) {
        catalogue.leave(name);
    } else if (verb == "find" && words >> name) {
        for (const std::string &found : catalogue.find(name))
            std::cout << found << '\n';
    } else {
        return false;
    }
    return true;
}

} // namespace

int main()
{
    Catalogue catalogue;
    std::string line;

    while (std::getline(std::cin, line)) {
        if (!obey(catalogue, line)) {
            std::cerr << "library: cannot obey: " << line << '\n';
            return 1;
        }
    }
    return 0;
}
