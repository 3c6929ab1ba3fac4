#include "catalogue.hpp"

#include <sstream>

namespace library {

void Catalogue::add(const std::string &signature, const std::string &title, int copies)
{
    Book &book = books_[signature];
    std::istringstream words(title);
    std::string word;

    book.title = title;
    book.copies += copies;
    while (words >> word)
        index_[word].insert(signature);
}

bool Catalogue::borrow(const std::string &reader, const std::string &signature)
{
    Book &book = books_.at(signature);

    if (book.copies == 0) {
        book.waiting.push_back(reader);
        return false;
    }
    book.copies--;
    borrowed_[reader].insert(signature);
    return true;
}

std::optional<std::string> Catalogue::give_back(const std::string &reader, const std::string &signature)
{
    Book &book = books_.at(signature);
    std::multiset<std::string> &own = borrowed_[reader];
    const auto copy = own.find(signature);

    if (copy == own.end())
        return std::nullopt;
    own.erase(copy);
    book.copies++;
    if (book.waiting.empty())
        return std::nullopt;

    const std::string next = book.waiting.front();
    book.waiting.pop_front();
    borrow(next, signature);
    return next;
}

void Catalogue::leave(const std::string &reader)
{
    for (auto &[signature, book] : books_) {
        for (std::size_t place = 0; place < book.waiting.size(); place++) {
            if (book.waiting[place] == reader)
                book.waiting.erase(book.waiting.begin() + place);
        }
    }
}

std::vector<std::string> Catalogue::find(const std::string &word) const
{
    const auto found = index_.find(word);

    if (found == index_.end())
        return {};
    return {found->second.begin(), found->second.end()};
}

std::size_t Catalogue::borrowed_by(const std::string &reader) const
{
    const auto found = borrowed_.find(reader);

    return found == borrowed_.end() ? 0 : found->second.size();
}

} // namespace library
