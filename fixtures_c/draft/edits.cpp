#include "edits.hpp"

#include <utility>

Insert::Insert(std::size_t position, std::string inserted)
    : position_(position), inserted_(std::move(inserted))
{
}

void Insert::apply(std::string &text)
{
    text.insert(position_, inserted_);
}

void Insert::undo(std::string &text)
{
    text.erase(position_, inserted_.size());
}

Erase::Erase(std::size_t position, std::size_t length) : position_(position), length_(length)
{
}

void Erase::apply(std::string &text)
{
    erased_ += text.substr(position_, length_);
    text.erase(position_, length_);
}

void Erase::undo(std::string &text)
{
    text.insert(position_, erased_);
}

Swap::Swap(char from, char to) : from_(from), to_(to)
{
}

void Swap::apply(std::string &text)
{
    positions_.clear();
    for (std::size_t i = 0; i < text.size(); i++) {
        if (text[i] == from_) {
            text[i] = to_;
            positions_.push_back(i);
        }
    }
}

void Swap::undo(std::string &text)
{
    for (std::size_t position : positions_)
        text[position] = from_;
}

void History::perform(std::unique_ptr<Edit> edit, std::string &text)
{
    edit->apply(text);
    done_.push_back(std::move(edit));
    undone_.clear();
}

std::string History::undo(std::string &text)
{
    if (done_.empty())
        return "";
    std::unique_ptr<Edit> edit = std::move(done_.back());

    done_.pop_back();
    edit->undo(text);
    undone_.push_back(std::move(edit));
    return undone_.back()->name();
}

std::string History::redo(std::string &text)
{
    if (undone_.empty())
        return "";
    std::unique_ptr<Edit> edit = std::move(undone_.back());

    undone_.pop_back();
    edit->apply(text);
    done_.push_back(std::move(edit));
    return done_.back()->name();
}
