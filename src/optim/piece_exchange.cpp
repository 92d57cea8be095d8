#include <lockstep/optim/piece_exchange.h>

namespace lockstep {

PieceExchange::~PieceExchange() = default;

}  // namespace lockstep
