#ifndef CATALOGUE_HPP
#define CATALOGUE_HPP

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace library {

struct Book {
    std::string title;
    int copies = 0;
    std::deque<std::string> waiting;
};

// Books by their signature, readers with what they have borrowed, and an index of the words in titles.
class Catalogue {
public:
    void add(const std::string &signature, const std::string &title, int copies);

    // Puts the reader on the waiting list when there is no copy left.
    bool borrow(const std::string &reader, const std::string &signature);

    // Whoever waits longest gets the copy at once; his or her name is returned.
    std::optional<std::string> give_back(const std::string &reader, const std::string &signature);

    // Takes a reader off all waiting lists.
    void leave(const std::string &reader);

    std::vector<std::string> find(const std::string &word) const;
    const std::map<std::string, Book> &books() const { return books_; }
    std::size_t borrowed_by(const std::string &reader) const;

private:
    std::map<std::string, Book> books_;
    std::unordered_map<std::string, std::multiset<std::string>> borrowed_;
    std::unordered_map<std::string, std::set<std::string>> index_;
};

} // namespace library

#endif
