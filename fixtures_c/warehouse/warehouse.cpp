// warehouse: obeys commands on standard input, one per line:
//
//     deliver ARTICLE COUNT CENTS    order CUSTOMER ARTICLE COUNT [ARTICLE COUNT]...    inventory

#include "stock.hpp"

#include <iostream>
#include <sstream>

namespace {

void deliver(Stock &stock, std::istringstream &words)
{
    std::string article;
    int count = 0;
    int cents = 0;

    words >> article >> count >> cents;
    stock.deliver(article, count, cents);
    for (const auto &customer : stock.retry())
        std::cout << "sent to " << customer << '\n';
}

void order(Stock &stock, std::istringstream &words)
{
    auto order = std::make_unique<Order>();
    std::string article;
    int count = 0;

    words >> order->customer;
    while (words >> article >> count)
        order->counts[article] += count;

    const std::string customer = order->customer;
    const std::optional<int> price = stock.place(std::move(order));
    if (price)
        std::cout << customer << " pays " << *price << '\n';
    else
        std::cout << customer << " waits\n";
}

void print_inventory(const Stock &stock)
{
    for (const auto &[name, article] : stock.articles())
        std::cout << name << ' ' << article.count << '\n';
    std::cout << stock.articles().size() << " articles, " << stock.waiting() << " orders waiting\n";
}

bool obey(Stock &stock, const std::string &text)
{
    std::istringstream words(text);
    std::string verb;

    words >> verb;
    if (verb == "deliver")
        deliver(stock, words);
    else if (verb == "order")
        order(stock, words);
    else if (verb == "inventory")
        print_inventory(stock);
    else
        return false;
    return true;
}

} // namespace

int main()
{
    Stock stock;
    std::string line;

    while (std::getline(std::cin, line)) {
        if (!obey(stock, line)) {
            std::cerr << "warehouse: cannot obey: " << line << '\n';
            return 1;
        }
    }
    return 0;
}
