#include "stock.hpp"

#include <utility>

void Stock::deliver(const std::string &article, int count, int cents)
{
    Article &known = articles_[article];

    known.count += count;
    known.cents = cents;
}

bool Stock::suffices(const Order &order)
{
    for (const auto &[article, count] : order.counts) {
        if (articles_[article].count < count)
            return false;
    }
    return true;
}

int Stock::take(const Order &order)
{
    int price = 0;

    for (const auto &[name, count] : order.counts) {
        Article &article = articles_.at(name);

        article.count -= count;
        price += count * article.cents;
    }
    return price;
}

std::optional<int> Stock::place(std::unique_ptr<Order> order)
{
    if (suffices(*order))
        return take(*order);
    waiting_.push_back(std::move(order));
    return std::nullopt;
}

std::vector<std::string> Stock::retry()
{
    std::vector<std::string> served;
    std::vector<std::unique_ptr<Order>> still_waiting;

    for (auto &order : waiting_) {
        if (suffices(*order)) {
            take(*order);
            served.push_back(order->customer);
        } else {
            still_waiting.push_back(std::move(order));
        }
    }
    waiting_ = std::move(still_waiting);
    return served;
}
