#include "tariffs.hpp"

#include <utility>

Stepped::Stepped(int first, int cents, std::shared_ptr<Tariff> rest)
    : first_(first), cents_(cents), rest_(std::move(rest))
{
}

int Stepped::price(int units) const
{
    if (units <= first_)
        return units * cents_;
    return first_ * cents_ + rest_->price(units - first_);
}

std::string Stepped::name() const
{
    return "stepped, then " + rest_->name();
}

void Stepped::raise(int cents)
{
    cents_ += cents;
    rest_->raise(cents);
}

void Utility::offer(const std::string &name, std::shared_ptr<Tariff> tariff)
{
    tariffs_[name] = std::move(tariff);
}

std::shared_ptr<Tariff> Utility::find(const std::string &name) const
{
    const auto found = tariffs_.find(name);

    return found == tariffs_.end() ? nullptr : found->second;
}

Customer &Utility::sign(const std::string &customer, const std::string &tariff)
{
    Customer &signed_up = customers_[customer];

    signed_up.name = customer;
    signed_up.tariff = find(tariff);
    return signed_up;
}

void Utility::replace(const std::string &name, std::shared_ptr<Tariff> tariff)
{
    std::shared_ptr<Tariff> &known = tariffs_.at(name);

    for (auto &[_, customer] : customers_) {
        if (customer.tariff == known) {
            customer.tariff = tariff;
            known = tariff;
        }
    }
    known = std::move(tariff);
}

int Utility::bill(const std::string &customer) const
{
    const Customer &known = customers_.at(customer);
    int units = 0;

    for (std::size_t n = 1; n < known.readings.size(); n++)
        units += known.readings[n] - known.readings[n - 1];
    return known.tariff->price(units);
}
